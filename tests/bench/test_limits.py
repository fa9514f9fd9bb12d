"""Limits of the cost of a training step of each method on an accelerator, relative to stock fairseq's Transformer.

The counts are computed by `posenc bench --count --output results/bench/counted/base`.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

import fairseq_posenc.host.plugin  # noqa: F401  registers the models
from fairseq_posenc import registry
from fairseq_posenc.bench import command, counts, models, settings

FOLDER = Path(__file__).parents[2] / "results" / "bench" / "counted" / "base"
#: shapes with limits, and all counted shapes
SHAPES, COUNTED = ("64x64", "8x512"), ("64x64", "8x512", "2x2048")
RENEW = "if this is meant: posenc bench --count --output results/bench/counted/base, into a removed folder"


@dataclass(frozen=True)
class Limits:
    """Maximum cost of a training step: launches and bytes as ratios to stock at 64x64 and 8x512, and waits."""

    launches: tuple[float, float]
    moved: tuple[float, float]
    waits: int = 1
    why: str = ""


#: limits for each kind of method
LIMITS = {
    "absolute": Limits((1.3, 1.3), (1.0, 1.0)),
    "bias": Limits((1.3, 1.3), (0.9, 0.8)),
    "rotary": Limits((1.3, 1.3), (1.1, 0.85)),
    "content": Limits((1.7, 1.7), (1.5, 2.0)),
}
#: hooks that compute scores or values from hidden states
_CONTENT_HOOKS = {"rescale", "content_scores", "content_values", "attend"}

_ROTATED = "the angles of all words are learned, in float32 in both passes"
_BIASED = "the kernel reads a bias of all pairs of tokens and writes its gradient"
_STEPS = "every operator of every time step counts"
_PAIRS = "scores of all pairs of tokens are tensors in float32 in both passes"
#: methods that exceed the limits of their kind, with the measured costs and the reason
EXCEPTIONS = {
    "pope": Limits((1.3, 1.3), (1.3, 0.87), why="queries and keys are twice as wide"),
    "selective_rope": Limits((1.7, 1.7), (1.51, 1.0), why=_ROTATED),
    "diet_rel": Limits((1.3, 1.3), (0.9, 0.85), why=_BIASED),
    "dynamic_bias": Limits((1.3, 1.3), (0.9, 0.9), why=_BIASED),
    "fire": Limits((1.3, 1.3), (0.9, 0.95), why=_BIASED),
    "segments": Limits((1.3, 1.3), (0.9, 0.95), why=_BIASED),
    "grape_ap": Limits((1.7, 1.7), (1.6, 2.2), why=_PAIRS),
    "localness": Limits((1.7, 1.7), (1.5, 2.55), why=_PAIRS),
    "path_attention": Limits((1.7, 1.7), (1.85, 2.95), why=_PAIRS),
    "stickbreaking": Limits((1.7, 1.7), (1.75, 4.95), why=_PAIRS),
    "cope": Limits((1.7, 1.7), (2.15, 5.2), why="gates, their sums, indices and the two products of an interpolation: " + _PAIRS),
    "dape": Limits((2.0, 2.0), (1.65, 4.65), why="a network of 32 hidden units reads the scores: " + _PAIRS),
    "huang3": Limits((1.7, 2.05), (5.65, 22.0), why="every pair of tokens has a product of three vectors"),
    "shaw_abs": Limits((1.7, 1.7), (4.2, 18.5), why="every pair of positions has a vector of its own"),
    "wall": Limits((1.7, 1.7), (7.45, 21.4), why="every channel of every pair of tokens has a factor of its own"),
    "spe_conv": Limits((2.1, 2.1), (2.25, 5.3), why="random codes of all positions and channels are convolved in both passes"),
    "spe_sine": Limits((2.5, 2.5), (3.3, 2.55), why="random codes of all positions and channels are computed in both passes"),
    "zhu": Limits((1.7, 2.0), (1.5, 3.3), why="vectors of pairs are gathered in blocks"),
    "cai_lam": Limits(
        (3.0, 7.75), (13.35, 46.7), why="a GRU reads all distinct paths; vectors of pairs are gathered in blocks per head"
    ),
    "floater": Limits((23.5, 184.0), (1.6, 4.6), why=_STEPS),
    "rnn": Limits((5.5, 39.0), (1.5, 2.0), why=_STEPS),
    "rr": Limits((6.4, 39.8), (1.55, 3.05), why=_STEPS),
}


def kind(name: str) -> str:
    """Return the kind of a method, from its hooks and flags, or from the folder of its file.

    Tokens and side inputs that a method looks up are not content: only hidden states are.
    """
    method = registry.method_class(name)
    family = method.__module__.split(".")[-2]
    reads_words = method.content_dependent and not method.card.documents and not method.card.side_inputs
    if reads_words or set(method._overridden) & _CONTENT_HOOKS or family in ("relative", "kernel"):
        return "content"
    return family if family in LIMITS else "absolute"


def measured() -> dict[str, dict]:
    return {row["method"]: row for row in counts.read(FOLDER / "count.json")["rows"]}


def excess(name: str, limits: Limits) -> list[str]:
    """Return one line for each limit that a method exceeds."""
    rows, found = measured(), []
    for number, shape in enumerate(SHAPES):
        measure = f"training {shape}"
        own, stock = rows[name].get(measure), rows["stock"][measure]
        if own is None:  # the options allow fewer positions
            continue
        launches = own["launches"] / stock["launches"]
        moved = (own["read"] + own["written"]) / (stock["read"] + stock["written"])
        for what, value, limit in (
            ("launches", launches, limits.launches[number]),
            ("bytes", moved, limits.moved[number]),
            ("waits", own["waits"], limits.waits),
        ):
            if value > limit:
                found.append(f"{name}, {measure}: {what} {value:.2f} > {limit}")
    return found


@pytest.mark.parametrize("name", registry.names())
def test_a_training_step_is_within_the_limits(name):
    assert name in measured(), RENEW
    assert excess(name, EXCEPTIONS.get(name, LIMITS[kind(name)])) == []


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_over_the_limits_of_its_kind_and_says_why(name):
    assert excess(name, LIMITS[kind(name)]) and EXCEPTIONS[name].why


@pytest.mark.slow
@pytest.mark.parametrize("name", [models.STOCK, "sinusoidal", "t5", "rope", "shaw", "cope"])
def test_the_stored_counts_are_current(name):
    """Check one method of each kind. The stored counts of tiny models include the other methods."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    chosen = settings.Settings.of(command.with_defaults(parser.parse_args(["--count", "--shapes", ",".join(COUNTED)])))
    assert counts.read(FOLDER / "count.json")["settings"] == counts.record(chosen), RENEW
    variant = models.Variant(models.STOCK, None) if name == models.STOCK else models.Variant.of(name, "model")
    for measure, found in counts.measured(variant, chosen):
        known = measured()[name][measure]
        assert {what: known[what] for what in found.totals()} == found.totals(), RENEW

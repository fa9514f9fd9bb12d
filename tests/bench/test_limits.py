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
from tests.bench.floors import FLOORS, Sizes

FOLDER = Path(__file__).parents[2] / "results" / "bench" / "counted" / "base"
#: SHAPES: the shapes whose costs have limits. COUNTED: all shapes whose costs are stored
SHAPES, COUNTED = ("64x64", "8x512"), ("64x64", "8x512", "2x2048")
RENEW = "if this is meant: posenc bench --count --output results/bench/counted/base, into a removed folder"


@dataclass(frozen=True)
class Limits:
    """Maximum cost of a training step.

    Each tuple contains the limit for 64 sentences of 64 words, and the limit for 8 sentences of 512 words. launches: launches,
    divided by the launches of stock fairseq. moved: bytes read and written, divided by the bytes of stock fairseq. waits: how
    often the host may wait for the device.
    """

    launches: tuple[float, float]
    moved: tuple[float, float]
    waits: int = 1


#: limits for each kind of method
LIMITS = {
    "absolute": Limits((1.3, 1.3), (1.0, 1.0)),
    "bias": Limits((1.3, 1.3), (0.9, 0.8)),
    "rotary": Limits((1.3, 1.3), (1.1, 0.85)),
    "content": Limits((1.7, 1.7), (1.5, 2.0)),
    "random": Limits((2.0, 2.0), (1.5, 2.0)),
}
#: hooks that compute scores or values from hidden states
_CONTENT_HOOKS = {"rescale", "content_scores", "content_values", "attend"}

#: a method may exceed the limits of its kind if its cost is at most this multiple of its floor
NEAR = 1.2


def kind(name: str) -> str:
    """Return the kind of a method, a key of `LIMITS`.

    A method reads content in three cases: its bias depends on hidden states, it overrides a hook in `_CONTENT_HOOKS`, or its
    family is "relative" or "kernel". A bias that depends only on tokens or side inputs does not read content. The kind of a
    method that reads content is "random" if its card says that it is stochastic, and "content" otherwise. The kind of any other
    method is its family, or "absolute" if `LIMITS` does not contain the family.
    """
    method = registry.method_class(name)
    family = method.__module__.split(".")[-2]
    reads_words = method.content_dependent and not method.card.documents and not method.card.side_inputs
    if reads_words or set(method._overridden) & _CONTENT_HOOKS or family in ("relative", "kernel"):
        return "random" if method.card.stochastic else "content"
    return family if family in LIMITS else "absolute"


def measured() -> dict[str, dict]:
    return {row["method"]: row for row in counts.read(FOLDER / "count.json")["rows"]}


def costs(name: str) -> list[tuple[str, str, float, float, float | None]]:
    """Return one tuple per cost of a method: name of the shape, name and value of the cost, limit, and floor.

    Launches and bytes are divided by the counts of stock fairseq. Waits are not divided.
    """
    rows, found, limits = measured(), [], LIMITS[kind(name)]
    for number, shape in enumerate(SHAPES):
        measure = f"training {shape}"
        own, stock, plain = (rows[row].get(measure) for row in (name, models.STOCK, "none"))
        if own is None:  # the options of the method do not allow sentences of this length
            continue
        least, sizes = FLOORS.get(name), Sizes(*map(int, shape.split("x")))
        moved, launches = None, None
        if least is not None:
            moved = (_moved(plain) + least.moved(sizes)) / _moved(stock)
        if least is not None and least.launches is not None:
            launches = (plain["launches"] + least.launches(sizes)) / stock["launches"]
        found.append((shape, "launches", own["launches"] / stock["launches"], limits.launches[number], launches))
        found.append((shape, "bytes", _moved(own) / _moved(stock), limits.moved[number], moved))
        found.append((shape, "waits", own["waits"], limits.waits, None))
    return found


def _moved(row: dict[str, int]) -> int:
    return row["read"] + row["written"]


@pytest.mark.parametrize("name", registry.names())
def test_a_training_step_is_within_the_limits_or_near_the_floor(name):
    assert name in measured(), RENEW
    for shape, what, value, limit, floor in costs(name):
        if floor is not None:
            limit = max(limit, NEAR * floor)
        assert value <= limit, f"{name}, {shape}: {what} {value:.3f} > {limit:.3f}, floor {floor}"


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_needed_and_is_not_higher_than_the_count(name):
    assert any(value > limit for _, _, value, limit, _ in costs(name))
    assert all(floor <= value for _, _, value, _, floor in costs(name) if floor is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", [models.STOCK, "sinusoidal", "t5", "rope", "shaw", "cope"])
def test_the_stored_counts_are_current(name):
    """Check stock fairseq and methods of all kinds except "random". test_count.py checks all methods in tiny models."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    chosen = settings.Settings.of(command.with_defaults(parser.parse_args(["--count", "--shapes", ",".join(COUNTED)])))
    assert counts.read(FOLDER / "count.json")["settings"] == counts.record(chosen), RENEW
    variant = models.Variant(models.STOCK, None) if name == models.STOCK else models.Variant.of(name, "model")
    for measure, found in counts.measured(variant, chosen):
        known = measured()[name][measure]
        assert {what: known[what] for what in found.totals()} == found.totals(), RENEW

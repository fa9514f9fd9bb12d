"""Limits of the cost of a training step of each method on an accelerator, relative to stock fairseq's Transformer.

The counts are computed by `posenc bench --count --output results/bench/counted/base`.
"""

import argparse
import math
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

#: a method may exceed the limits of its kind if its cost is at most this multiple of its floor. `ABOVE` lists larger multiples
NEAR = 1.2


@dataclass(frozen=True)
class Above:
    """Cost of a method divided by its floor, rounded up to two decimals, for 64 sentences of 64 words and for 8 of 512 words.

    A value is None if the count is near the floor or within its limit.
    """

    why: str
    launches: tuple[float | None, float | None] = (None, None)
    moved: tuple[float | None, float | None] = (None, None)


_GRU = "every operator of every step of PyTorch's GRU counts; on CUDA, cuDNN launches fewer kernels"
#: methods that are not near their floor
ABOVE = {
    "cai_lam": Above(
        "each layer gathers vectors of its own for queries and keys, in both passes, and a GRU counts every operator",
        (2.0, 2.97), (3.34, 2.08),
    ),
    "floater": Above(
        "a rotation takes three operators, and gradients of weights are added at every step", (4.47, 4.97), (1.58, 2.93)
    ),
    "huang3": Above(
        "products of three vectors are computed in blocks, and a block of the decoder includes keys after the query",
        (None, 2.03), (1.24, 1.42),
    ),
    "rnn": Above(_GRU, (4.05, 6.63), (1.26, 2.33)),
    "rr": Above(_GRU, (3.5, 6.3), (None, 2.14)),
    "spe_sine": Above(
        "every layer computes the waves of positions, and sums of products with waves are not matrix products", moved=(1.34, None)
    ),
    "zhu": Above("keys and values gather vectors of their own, in both passes", moved=(None, 1.44)),
}  # fmt: skip


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


def costs(name: str) -> list[tuple[int, str, str, float, float, float | None]]:
    """Return one tuple per cost of a method: index and name of the shape, name and value of the cost, limit, and floor.

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
        found.append((number, shape, "launches", own["launches"] / stock["launches"], limits.launches[number], launches))
        found.append((number, shape, "bytes", _moved(own) / _moved(stock), limits.moved[number], moved))
        found.append((number, shape, "waits", own["waits"], limits.waits, None))
    return found


def _moved(row: dict[str, int]) -> int:
    return row["read"] + row["written"]


def multiple(name: str, what: str, number: int) -> float | None:
    """Return a cost of a method divided by its floor, as listed in `ABOVE`. Return None if `ABOVE` does not list it."""
    if name not in ABOVE or what == "waits":
        return None
    return (ABOVE[name].launches if what == "launches" else ABOVE[name].moved)[number]


@pytest.mark.parametrize("name", registry.names())
def test_a_training_step_is_within_the_limits_or_near_the_floor(name):
    assert name in measured(), RENEW
    for number, shape, what, value, limit, floor in costs(name):
        if floor is not None:
            limit = max(limit, floor * (multiple(name, what, number) or NEAR))
        assert value <= limit, f"{name}, {shape}: {what} {value:.3f} > {limit:.3f}, floor {floor}"


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_is_needed_and_is_not_higher_than_the_count(name):
    assert any(value > limit for _, _, _, value, limit, _ in costs(name))
    assert all(floor <= value for _, _, _, value, _, floor in costs(name) if floor is not None)


@pytest.mark.parametrize("name", ABOVE)
def test_a_method_above_its_floor_is_listed_with_its_multiple(name):
    assert ABOVE[name].why
    for number, shape, what, value, limit, floor in costs(name):
        known = multiple(name, what, number)
        if known is not None:
            assert value > limit and floor is not None and value > NEAR * floor
            assert known == math.ceil(100 * value / floor) / 100, f"{name}, {shape}: {what}"


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

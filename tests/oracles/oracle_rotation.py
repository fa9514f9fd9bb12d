"""Rotary positions that decay with distance (xPos), or that are scaled for sentences longer than in training."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_rope import kept, rotated


def pairs(width: int, layout: str) -> list:
    """Return the two channels of every pair."""
    return [(2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2) for i in range(width // 2)]


def turned(x: np.ndarray, position: float, frequencies: list, layout: str) -> np.ndarray:
    """Rotate the first channels. Each pair has its own frequency."""
    out = x.copy()
    for pair, frequency in zip(pairs(2 * len(frequencies), layout), frequencies):
        out[list(pair)] = rotated(x[list(pair)], position * frequency, layout, 1.0, 1.0)
    return out


def score_xpos(q, k, t, s, at):
    if s > t:
        return math.nan  # for later keys, the factor would grow with distance
    width, layout = len(q), at["layout"]
    q, k = (rotated(x, position, layout, 1.0, at["base"]) for x, position in ((q, t), (k, s)))
    total = 0.0
    for i, pair in enumerate(pairs(width, layout)):
        zeta = (2 * i + 0.4 * width) / (1.4 * width)
        total += zeta ** ((t - s) / at["scale_base"]) * sum(q[channel] * k[channel] for channel in pair)
    return total / math.sqrt(width)


def yarn(i: int, width: int, at) -> float:
    """Return the frequency of pair i.

    A pair that turns at least 32 times within the trained length keeps its frequency. If a pair does not complete one turn,
    its frequency is divided by the factor. Between these limits, the frequency is interpolated.
    """
    base, trained = at["base"], at["trained"]

    def pair_of(rotations: int) -> float:
        return width * math.log(trained / (2 * math.pi * rotations)) / (2 * math.log(base))

    low, high = (min(max(x, 0), width - 1) for x in (math.floor(pair_of(32)), math.ceil(pair_of(1))))
    ramp = min(max((i - low) / (high - low or 0.001), 0), 1)
    return ((1 - ramp) + ramp / at["factor"]) * base ** (-2 * i / width)


def llama3(theta: float, at) -> float:
    """Return the scaled frequency of a pair.

    A pair that turns more than `high` times within the trained length keeps its frequency. If a pair turns less than `low`
    times, its frequency is divided by the factor. Between these limits, the frequency is interpolated.
    """
    turns = at["trained"] * theta / (2 * math.pi)
    if turns > at["high"]:
        return theta
    if turns < at["low"]:
        return theta / at["factor"]
    share = (turns - at["low"]) / (at["high"] - at["low"])
    return (1 - share) * theta / at["factor"] + share * theta


def frequencies(width: int, length: int, at) -> list:
    """Return the frequencies of all pairs for this length. The frequency before scaling decides whether a pair rotates."""
    plain = [at["base"] ** (-2 * i / width) for i in range(width // 2)]
    scaled = scaled_frequencies(width, length, at)
    return [x if kept(i, theta, width // 2, at) else 0.0 for i, (x, theta) in enumerate(zip(scaled, plain))]


def scaled_frequencies(width: int, length: int, at) -> list:
    how, factor, base = at["scaling"], at["factor"], at["base"]
    if how == "yarn":
        return [yarn(i, width, at) for i in range(width // 2)]
    if how == "llama3":
        return [llama3(base ** (-2 * i / width), at) for i in range(width // 2)]
    growth = 1.0
    if how == "ntk":
        growth = factor
    elif how == "dynamic" and length > at["trained"]:
        growth = factor * length / at["trained"] - (factor - 1)
    if growth != 1:  # with growth 1, `width` may be 2. The division by width - 2 would then fail
        base *= growth ** (width / (width - 2))
    return [base ** (-2 * i / width) / (factor if how == "linear" else 1) for i in range(width // 2)]


def scaled(q, k, t, s, length: int, at) -> float:
    width = int(len(q) * at["fraction"]) // 2 * 2  # an even number of channels
    omega = frequencies(width, length, at)
    q, k = (turned(x, position, omega, at["layout"]) for x, position in ((q, t), (k, s)))
    if at["scaling"] == "yarn":  # only the rotated channels are multiplied by this factor
        sharper = np.where(np.arange(len(q)) < width, 0.1 * math.log(at["factor"]) + 1, 1)
        q, k = sharper * q, sharper * k
    return q @ k / math.sqrt(len(q))


def score_scaled(q, k, t, s, at):
    return scaled(q, k, t, s, 0, at)


def row_dynamic(q, k, column, seen, at):
    # The length is the number of keys. With a causal mask, only visible keys count, as in a decoding step.
    length = at.query_ids[column] + 1 if at.causal else max(at.key_ids[row] for row in at.real) + 1
    return [scaled(q[column], k[row], at.query_ids[column], at.key_ids[row], length, at) for row in seen]


SCALED = {
    "scaling": "linear", "factor": 2.0, "trained": 512, "layout": "halves", "fraction": 1.0, "base": 10000.0, "keep": 1.0,
    "cutoff": None, "low": 1.0, "high": 4.0,
}  # fmt: skip
ORACLES = [
    Oracle(
        "xpos",
        score=score_xpos,
        defaults={"layout": "interleaved", "base": 10000.0, "scale_base": 512.0},
        cases=[
            ({}, "decoder"),
            ({"layout": "halves"}, "decoder"),
            ({"base": 20.0, "scale_base": 100.0}, "decoder"),
            ({"layout": "halves", "scale_base": 64.0}, "decoder"),
        ],
        real=True,
        atol=1e-6,  # tables are float32
    ),
    Oracle(
        "rope_scaled",
        score=score_scaled,
        defaults=SCALED,
        cases=[
            ({}, "encoder decoder cross"),
            ({"factor": 3.5, "fraction": 0.5, "layout": "interleaved"}, "encoder cross"),
            ({"scaling": "ntk"}, "encoder decoder cross"),
            ({"scaling": "ntk", "factor": 4.0, "base": 50.0}, "encoder"),
            ({"scaling": "yarn"}, "encoder decoder cross"),
            ({"scaling": "yarn", "factor": 4.0, "base": 20.0}, "encoder"),  # some frequencies are interpolated
            ({"scaling": "yarn", "fraction": 0.5, "trained": 2048, "layout": "interleaved"}, "encoder"),
            ({"scaling": "llama3", "trained": 16, "base": 20.0}, "encoder decoder cross"),
            ({"scaling": "llama3", "trained": 32, "base": 20.0, "layout": "interleaved"}, "encoder"),
            ({"scaling": "llama3", "trained": 12, "low": 0.5, "high": 2.5, "factor": 8.0}, "encoder decoder"),
            ({"keep": 0.5}, "encoder decoder"),
            ({"cutoff": 40, "base": 50.0, "scaling": "ntk"}, "encoder"),
        ],
        real=True,
        atol=1e-6,
    ),
    Oracle(
        "rope_scaled",
        row=row_dynamic,
        defaults=SCALED,
        cases=[
            ({"scaling": "dynamic"}, "encoder decoder cross"),
            ({"scaling": "dynamic", "trained": 3}, "encoder decoder cross"),
            ({"scaling": "dynamic", "trained": 2, "factor": 1.5, "base": 30.0, "layout": "interleaved"}, "encoder cross"),
        ],
        atol=1e-6,
    ),
]

"""Adaptive-T5 (after Wu et al. 2021): learned bucket borders, and interpolation between neighbouring buckets."""

import math

from fairseq_posenc.testing.reference import Oracle, product


def place_in_table(a: int, x: float, y: float, buckets: int, max_distance: float) -> float:
    """Return beta, the real-valued bucket number of the distance a.

    x and y are the parameters that determine alpha and gamma. Below alpha, beta equals the distance. Beyond alpha, beta grows
    with the logarithm of the distance. The largest value of beta is `buckets` - 1. Without this limit, beta would be `buckets`
    at the distance gamma.
    """
    alpha = 1 + (buckets - 2) / (1 + math.exp(-x))
    gamma = alpha + 1 + (max_distance - buckets / 2 - 1) * math.exp(y)
    beta = a if a < alpha else alpha + (buckets - alpha) * math.log(a / alpha) / math.log(gamma / alpha)
    return min(max(beta, 0), buckets - 1)


def score(q, k, t, s, at):
    side = 1 if s > t else 0
    if at.site == "decoder" and side == 1:
        return math.nan
    table = at.own("weight")[side]
    x, y = at.own("exact")[side], at.own("largest")[side, 0]
    beta = place_in_table(abs(s - t), x, y, at["buckets"], at["max_distance"])
    low = math.floor(beta)
    part = beta - low if at["interpolate"] else 0
    return product(q, k, t, s, at) + (1 - part) * table[low] + part * table[math.ceil(beta)]


ORACLES = [
    Oracle(
        "at5",
        score=score,
        defaults={"buckets": 16, "max_distance": 128.0, "borders": "shared", "interpolate": True, "share": "layers"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"buckets": 3}, "encoder decoder cross"),
            ({"buckets": 5, "borders": "heads"}, "encoder decoder"),
            ({"buckets": 5, "max_distance": 6.0, "borders": "heads", "share": "none"}, "encoder"),
            ({"buckets": 4, "share": "heads"}, "encoder decoder"),
            ({"buckets": 4, "max_distance": 9.0, "interpolate": False}, "encoder decoder cross"),
        ],
        real=True,
    )
]

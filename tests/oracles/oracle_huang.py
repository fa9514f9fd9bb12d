"""Methods 1, 3 and 4 of Huang et al. (2020).

Method 1 has a factor for every distance. For every signed distance, method 3 has a gate and method 4 has a vector.
"""

import math

from fairseq_posenc.testing.reference import Oracle, product


def clipped(delta: int, at) -> tuple:
    """Return the clipped signed distance, and the largest distance of the table."""
    reach = at.max_positions - 1 if at["max_distance"] is None else at["max_distance"]
    return max(-reach, min(reach, delta)), reach


def score1(q, k, t, s, at):
    delta, _ = clipped(s - t, at)
    return product(q, k, t, s, at) * at.own("factor")[abs(delta)]


def score3(q, k, t, s, at):
    delta, reach = clipped(s - t, at)
    r = at.own("gate")[delta + reach]
    return sum(q[i] * k[i] * r[i] for i in range(len(q))) / math.sqrt(len(q))


def score4(q, k, t, s, at):
    delta, reach = clipped(s - t, at)
    r = at.own("table")[delta + reach]
    return (q @ k + q @ r + k @ r) / math.sqrt(len(q))


DEFAULTS = {"max_distance": None, "share": "none"}
CASES = [
    ({}, "encoder decoder cross"),
    ({"max_distance": 2}, "encoder decoder cross"),
    ({"max_distance": 3, "share": "heads"}, "encoder decoder"),
    ({"share": "layers"}, "encoder cross"),
    ({"max_distance": 1, "share": "all"}, "encoder"),
]
ORACLES = [
    Oracle("huang1", score=score1, defaults=DEFAULTS, cases=CASES),
    Oracle("huang3", score=score3, defaults=DEFAULTS, cases=CASES),
    Oracle("huang4", score=score4, defaults=DEFAULTS, cases=CASES),
]

"""Bucketed scalar biases (Raffel et al. 2020)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def bucket(delta: int, buckets: int, max_distance: int, both: bool) -> int:
    half, offset, a = (buckets // 2, buckets // 2 if delta > 0 else 0, abs(delta)) if both else (buckets, 0, max(-delta, 0))
    exact = half // 2
    if a < exact:
        return offset + a
    # float32 and truncation, as in the paper's code. With another
    # rounding, the border between two buckets would move by one distance
    further = np.log(np.float32(a / exact)) / np.float32(math.log(max_distance / exact)) * np.float32(half - exact)
    return offset + min(half - 1, exact + int(further))


def score(q, k, t, s, at):
    both = at.site != "decoder"
    return product(q, k, t, s, at) + at.own("weight")[bucket(s - t, at["buckets"], at["max_distance"], both)]


ORACLES = [
    Oracle(
        "t5",
        score=score,
        defaults={"buckets": 32, "max_distance": 128, "share": "layers"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"buckets": 6, "max_distance": 5}, "encoder decoder cross"),
            ({"buckets": 10, "max_distance": 40, "share": "none"}, "encoder decoder"),
            ({"buckets": 8, "share": "heads"}, "encoder decoder"),
        ],
    )
]

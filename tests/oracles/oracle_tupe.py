"""TUPE-A and TUPE-R (Ke et al. 2021): positions and words have separate projections."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear, split

from .oracle_t5 import bucket


def projected(side: str, row: int, at) -> np.ndarray:
    """Return a row of a position table after layer norm and projection. Return only the channels of this head."""
    owner = "key_positions" if side == "key" and at.site == "cross" else "query_positions"
    p = at.parameters[f"{owner}.embedding.weight"][row]
    p = (p - p.mean()) / np.sqrt(((p - p.mean()) ** 2).mean() + 1e-5)
    p = p * at.parameters[f"{owner}.norm.weight"] + at.parameters[f"{owner}.norm.bias"]
    p = linear(p, at.parameters[f"{side}_proj.weight"], at.parameters[f"{side}_proj.bias"])
    return split(p, at.head, at.heads)


def absolute(t, s, at) -> float:
    query_row, key_row = t + 1, s + 1
    # Row 0 of the table is for theta 1 (the query is the first token), row 1 for theta 2 (the key is the first token).
    # If both are the first token, theta 1 is used.
    if at["untie_first"]:
        if t == 0:
            query_row = key_row = 0
        elif s == 0:
            query_row = key_row = 1
    return projected("query", query_row, at) @ projected("key", key_row, at)


def score_abs(q, k, t, s, at):
    return (q @ k + absolute(t, s, at)) / math.sqrt(2 * len(q))


def score_rel(q, k, t, s, at):
    number = bucket(s - t, 32, 128, at.site != "decoder")
    if at["untie_first"]:
        number = 16 if t == 0 else 32 if s == 0 else number
    return score_abs(q, k, t, s, at) + at.parameters["bucket_bias"][at.head, number]


CASES = [({}, "encoder decoder cross"), ({"untie_first": True}, "encoder decoder")]
ORACLES = [
    Oracle("tupe_abs", score=score_abs, defaults={"untie_first": False}, cases=CASES, reach=12),
    Oracle("tupe_rel", score=score_rel, defaults={"untie_first": False}, cases=CASES, reach=12),
]

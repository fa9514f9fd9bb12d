"""Forget gates that each query computes for the words before it: row_gates and GRAPE-AP (Zhang et al. 2026)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product

from .oracle_alibi import slopes
from .oracle_rope import rotated


def log_sigmoid(x: float) -> float:
    return -np.logaddexp(0, -x)


def summed(edge, column, s, seen, at) -> float:
    """Return the sum of the logarithms of the gates from a key to the query."""
    first, last = (s, column - 1) if at["sum"] == "from_key" else (s + 1, column)
    return sum(log_sigmoid(edge(j)) for j in seen if first <= j <= last)


def row(q, k, column, seen, at):
    of_query = at.inputs[0][column] @ at.own("query_weight")

    def edge(j):
        return of_query @ (at.inputs[1][j] @ at.own("key_weight")) / math.sqrt(at["width"])

    return [product(q[column], k[s], None, None, at) + summed(edge, column, s, seen, at) for s in seen]


def row_of_grape(q, k, column, seen, at):
    of_query = at.inputs[0][column] @ at.own("weight")
    sign = 1 if at["direction"] == "rope" else -1

    def edge(j):
        p = at.inputs[1][j] @ at.own("weight")
        p = p / math.sqrt(np.mean(p * p) + np.finfo(np.float64).eps)
        place = sign * at.key_ids[j]
        return of_query @ rotated(p, 1.0, "halves", 1.0, 1.0, lambda i, theta: place) / at["width"]

    slope = slopes(at.heads)[at.head]
    return [product(q[column], k[s], None, None, at) + slope * summed(edge, column, s, seen, at) for s in seen]


ORACLES = [
    Oracle(
        "row_gates",
        row=row,
        defaults={"width": 8, "sum": "after_key"},
        cases=[({}, "decoder"), ({"width": 3}, "decoder"), ({"sum": "from_key"}, "decoder")],
    ),
    Oracle(
        "grape_ap",
        row=row_of_grape,
        defaults={"width": 8, "sum": "after_key", "direction": "rope"},
        cases=[({}, "decoder"), ({"width": 4, "direction": "code"}, "decoder"), ({"sum": "from_key"}, "decoder")],
    ),
]

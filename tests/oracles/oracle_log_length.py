"""Scores that grow with the logarithm of the length (Zhang et al. 2023; Nakanishi 2025)."""

import math

from fairseq_posenc.testing.reference import Oracle, product


def factor(n: int, at) -> float:
    """Return the factor of a query with n keys."""
    if at["form"] == "mt":
        return max(math.log(n), 0.1) / math.log(at["length"])
    if at["form"] == "floor":
        return 1 + 0.1 * math.log(max(1, n / at["length"]))
    return at.own("factor") * math.log(n) + (at.own("offset") if at["bias"] else 0)


def row(q, k, column, seen, at):
    """Return a row of scores. `seen` are the words of the source, or the words of the target up to the query."""
    return [factor(len(seen), at) * product(q[column], k[s], column, s, at) for s in seen]


ORACLES = [
    Oracle(
        "log_length",
        row=row,
        defaults={"form": "mt", "length": 25.0, "start": None, "bias": False, "share": "none"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"length": 4.0}, "encoder decoder cross"),
            ({"form": "floor", "length": 2.0}, "encoder decoder cross"),
            ({"form": "ssmax"}, "encoder decoder cross"),
            ({"form": "ssmax", "bias": True, "start": 0.43}, "encoder decoder cross"),
            ({"form": "ssmax", "share": "heads"}, "encoder decoder"),
            ({"form": "ssmax", "share": "layers"}, "cross"),
        ],
        atol=1e-6,  # logarithms are float32
    )
]

"""Relative vectors in keys and values (Shaw et al. 2018)."""

import math

from fairseq_posenc.testing.reference import Oracle


def row(table: str, t, s, at):
    k = at["max_distance"]
    return at.own(table)[max(-k, min(k, s - t)) + k]


def score(q, k, t, s, at):
    return q @ (k + row("key_table", t, s, at) if at["keys"] else k) / math.sqrt(len(q))


def value(v, t, s, at):
    return v + row("key_table" if at["tie"] else "value_table", t, s, at) if at["values"] else v


ORACLES = [
    Oracle(
        "shaw",
        score=score,
        value=value,
        defaults={"max_distance": 16, "keys": True, "values": True, "tie": False, "share": "heads"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"max_distance": 2}, "encoder decoder cross"),
            ({"max_distance": 2, "share": "none"}, "encoder decoder cross"),
            ({"max_distance": 3, "share": "layers"}, "encoder"),
            ({"max_distance": 2, "tie": True, "share": "none"}, "encoder decoder"),
            ({"max_distance": 2, "keys": False}, "encoder decoder"),
            ({"max_distance": 2, "values": False}, "encoder decoder"),
            ({"max_distance": 0}, "encoder"),
        ],
    )
]

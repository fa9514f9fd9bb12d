"""A parameter for every pair of positions: scalars (Dufter et al. 2020) and Shaw's absolute form (Shaw et al. 2018)."""

import math

from fairseq_posenc.testing.reference import Oracle, product


def score_dufter_abs(q, k, t, s, at):
    return product(q, k, t, s, at) + at.own("table")[t, s]


def score_dufter_rel(q, k, t, s, at):
    last = at.max_positions - 1
    return product(q, k, t, s, at) + at.own("table")[max(-last, min(last, s - t)) + last]


def score_shaw(q, k, t, s, at):
    return q @ (k + at.own("key_table")[t, s] if at["keys"] else k) / math.sqrt(len(q))


def value_shaw(v, t, s, at):
    return v + at.own("value_table")[t, s] if at["values"] else v


CASES_DUFTER = [
    ({}, "encoder decoder cross"),
    ({"share": "heads"}, "encoder decoder cross"),
    ({"share": "layers"}, "encoder decoder"),
    ({"share": "all"}, "encoder"),
]
ORACLES = [
    Oracle("dufter_abs", score=score_dufter_abs, defaults={"share": "none"}, cases=CASES_DUFTER, reach=12),
    Oracle("dufter_rel", score=score_dufter_rel, defaults={"share": "none"}, cases=CASES_DUFTER),
    Oracle(
        "shaw_abs",
        score=score_shaw,
        value=value_shaw,
        defaults={"keys": True, "values": True, "share": "heads"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"share": "none"}, "encoder decoder cross"),
            ({"keys": False}, "encoder decoder"),
            ({"values": False, "share": "all"}, "encoder cross"),
            ({"share": "layers"}, "encoder"),
        ],
        reach=12,
    ),
]

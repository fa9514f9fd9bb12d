"""DIET (Chen et al. 2021): relative positions, absolute positions, and absolute positions with Linformer's keys.

The scores of positions do not depend on the words.
"""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear, softmax, split


def content(q, k, at) -> float:
    """Return the product of query and key, divided by the square root of the head width.

    With scale=model, the width of the model replaces the head width, as in the paper's equations.
    """
    return q @ k / math.sqrt(len(q) * at.heads if at["scale"] == "model" else len(q))


def score_rel(q, k, t, s, at):
    last = at.max_positions - 1
    return content(q, k, at) + at.own("table")[max(-last, min(last, s - t)) + last]


def score_abs(q, k, t, s, at):
    return content(q, k, at) + at.own("query_positions")[t] @ at.own("key_positions")[s]


def mixed(name: str, inputs: np.ndarray, seen: list, at) -> np.ndarray:
    """Return E X, where the rows of X are the inputs of the visible keys.

    All heads use the same matrix E. Each key position has one column of E.
    """
    table = at.parameters[name]
    mixer = table[at.layer if len(table) > 1 else 0]
    return sum(np.outer(mixer[:, at.key_ids[row]], inputs[row]) for row in seen)


def output_linformer(column, seen, at):
    def projected(which, x):
        return split(linear(x, *at.projections[which]), at.head, at.heads)

    query, t = at.inputs[0][column], at.query_ids[column]
    keys = mixed("key_mixer", at.inputs[1], seen, at)
    values = mixed("key_mixer" if at["tie"] else "value_mixer", at.inputs[2], seen, at)
    q = projected("q", query)
    shares = softmax([score_abs(q, projected("k", x), t, j, at) for j, x in enumerate(keys)])  # j counts compressed keys
    return sum(share * projected("v", x) for share, x in zip(shares, values))


ORACLES = [
    Oracle(
        "diet_rel",
        score=score_rel,
        defaults={"share": "none", "scale": "head"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"scale": "model"}, "encoder decoder cross"),
            ({"share": "heads"}, "encoder decoder"),
            ({"share": "layers"}, "encoder cross"),
            ({"share": "all", "scale": "model"}, "encoder"),
        ],
    ),
    Oracle(
        "diet_abs",
        score=score_abs,
        defaults={"rank": None, "share": "layers", "scale": "head"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"rank": 7, "scale": "model"}, "encoder decoder cross"),
            ({"share": "none"}, "encoder decoder"),
            ({"rank": 1, "share": "heads"}, "encoder cross"),
            ({"share": "all"}, "encoder"),
        ],
        reach=12,
    ),
    Oracle(
        "diet_linformer",
        output=output_linformer,
        defaults={"rank": 32, "width": None, "tie": True, "share": "none", "scale": "head"},
        cases=[
            ({}, "encoder cross"),
            ({"rank": 3, "tie": False}, "encoder cross"),
            ({"width": 6, "share": "heads", "scale": "model"}, "encoder cross"),
            ({"rank": 5, "tie": False, "share": "layers"}, "encoder"),
            ({"rank": 1, "share": "all"}, "encoder"),
        ],
        reach=12,
    ),
]

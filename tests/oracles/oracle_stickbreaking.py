"""Stick-breaking attention (Tan et al. 2025): each key takes a part of the remaining weight, beginning with the nearest key."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product, projected


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def to_the_left(at) -> bool:
    """Return whether a head attends to the left.

    In a decoder, all heads attend to the left. In an encoder, the first half of the heads does.
    """
    return at.causal or at.head < at.heads // 2


def allowed(t, s, at):
    return s <= t if to_the_left(at) else s >= t


def shares(q, k, column, seen, at) -> dict:
    """Return a dictionary from the column of a key to its weight, for all keys in `seen` and for the token itself.

    The token itself has the remaining weight.
    """
    found, remains = {}, 1.0
    for s in sorted((s for s in seen if s != column), reverse=to_the_left(at)):  # from near to far keys
        part = sigmoid(product(q[column], k[s], None, None, at))
        found[s] = remains * part
        remains *= 1 - part
    return {**found, column: remains}


def row(q, k, column, seen, at):
    found = shares(q, k, column, [s for s in seen if allowed(column, s, at)], at)
    return [math.log(found[s]) if s in found else math.nan for s in seen]


def plus(v, column, seen, at):
    """Return the correction of the output if the token itself does not receive the remaining weight.

    With rest=bias, the learned vector receives this weight. With rest=drop, no vector receives it.
    """
    if at["rest"] == "self":
        return 0
    own = Oracle("stickbreaking", [])
    remains = shares(projected("q", own, at), projected("k", own, at), column, seen, at)[column]
    return remains * ((at.own("value") if at["rest"] == "bias" else np.zeros_like(v[column])) - v[column])


ORACLES = [
    Oracle(
        "stickbreaking",
        row=row,
        allowed=allowed,
        plus=plus,
        defaults={"rest": "self"},
        cases=[({}, "encoder decoder"), ({"rest": "bias"}, "encoder decoder"), ({"rest": "drop"}, "encoder decoder")],
    )
]

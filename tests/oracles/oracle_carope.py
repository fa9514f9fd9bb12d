"""Rotations by angles that are computed from the words (CARoPE, Veisi et al. 2025)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_rope import rotated


def angle(column: int, pair: int, at) -> float:
    """Return the sum of f_j^`pair` over all words j up to the word in `column`.

    The number f_j is computed from word j.
    """
    total = 0.0
    for j in at.real:
        if j <= column:
            raw = at.own("weight") @ at.inputs[1][j] + (at.own("offset") if at["start"] == "rope" else 0)
            total += (1 / (np.logaddexp(0, raw) + 1)) ** pair
    return total


def row(q, k, column, seen, at):
    def turned(x, where):
        return rotated(x, 1.0, "halves", 1.0, 1.0, lambda i, theta: angle(where, i, at))

    return [turned(q[column], column) @ turned(k[s], s) / math.sqrt(len(k[s])) for s in seen]


ORACLES = [
    Oracle(
        "carope",
        row=row,
        defaults={"start": "rope"},
        cases=[({}, "encoder decoder"), ({"start": "paper"}, "encoder decoder")],
    )
]

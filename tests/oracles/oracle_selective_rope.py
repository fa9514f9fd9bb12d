"""Rotations by angles that are computed from words and their neighbours (Selective RoPE, Movahedi et al. 2026)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, split

from .oracle_rope import rotated


def unit(x: np.ndarray, heads: int) -> np.ndarray:
    """Divide the vector of every head by its Euclidean norm."""
    slices = [split(x, head, heads) for head in range(heads)]
    return np.concatenate([part / math.sqrt(part @ part) for part in slices])


def angles(column: int, at) -> np.ndarray:
    """Return the angles of this head in `column`, [pairs]. Each angle is a sum over all words up to `column`."""
    own = {name: table[at.layer] for name, table in at.parameters.items()}
    words = [j for j in at.real if j <= column]
    x = [unit(at.inputs[1][j], at.heads) for j in words]
    projected = [one @ own["down"] @ own["up"] for one in x]
    total = 0.0
    for place in range(len(words)):
        step = 0 * projected[place]
        for back in range(min(at["conv"], place + 1)):
            step = step + own["taps"][:, at["conv"] - 1 - back] * projected[place - back]
        if at["bias"]:
            step = step + np.exp(own["offset"])
        step = split(step, at.head, at.heads)
        if at["gate"]:
            step = step / (1 + math.exp(-(own["gate_weight"][at.head] @ x[place] + own["gate_offset"][at.head])))
        total = total + step
    return total * at["base"] ** (-np.arange(len(total)) / len(total))


def row(q, k, column, seen, at):
    def turned(x, where):
        found = angles(where, at)
        return rotated(x, 1.0, "halves", 1.0, 1.0, lambda i, theta: found[i])

    return [turned(q[column], column) @ turned(k[s], s) / math.sqrt(len(k[s])) for s in seen]


ORACLES = [
    Oracle(
        "selective_rope",
        row=row,
        defaults={"rank": 32, "conv": 4, "bias": True, "gate": False, "base": 500000.0},
        cases=[
            ({}, "encoder decoder"),
            ({"bias": False}, "encoder decoder"),
            ({"gate": True, "rank": 3}, "encoder decoder"),
            ({"conv": 1, "base": 100.0}, "encoder decoder"),
        ],
    )
]

"""Products of matrices that are close to reflections, one per word between query and key (PaTH attention, Yang et al. 2025)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, split


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def factor(j: int, side: int, at) -> np.ndarray:
    """Return H_j = I - beta_j w_j w_j^T of one head.

    With conv > 0, w_j is computed by a convolution over word j and the words before word j. Before the first word, the
    convolution reads zeros.
    """
    own = {name: table[at.layer, side] for name, table in at.parameters.items()}
    words = [i for i in at.real if i <= j]  # word j is the last word of this list

    def projected(i):
        x = at.inputs[1][i]
        return (x @ own["down"] if at["rank"] else x) @ own["up"]

    w = projected(j)
    if at["conv"]:
        taps = range(at["conv"])
        w = sum((own["taps"][:, -1 - back] * projected(words[-1 - back]) for back in taps if back < len(words)), 0 * w)
        w = w / (1 + np.exp(-w))
    w = split(w, at.head, at.heads)
    length = math.sqrt(w @ w)
    w = w / length if length > 1e-12 else 0 * w
    beta = at["beta"] * sigmoid(own["weight"][at.head] @ at.inputs[1][j] + own["offset"][at.head])
    return np.eye(len(w)) - beta * np.outer(w, w)


def row(q, k, column, seen, at):
    def score(s):
        path = np.eye(len(k[s]))
        if s <= column:
            for j in [j for j in at.real if s < j <= column]:
                path = path @ factor(j, 0, at)
            return k[s] @ path @ q[column] / math.sqrt(len(k[s]))
        for j in [j for j in at.real if column < j <= s]:
            path = path @ factor(j, 1, at)
        return q[column] @ path @ k[s] / math.sqrt(len(k[s]))

    return [score(s) for s in seen]


ORACLES = [
    Oracle(
        "path_attention",
        row=row,
        defaults={"rank": 32, "conv": 3, "beta": 2.0},
        cases=[
            ({}, "encoder decoder"),
            ({"rank": 0, "conv": 0}, "encoder decoder"),
            ({"rank": 3, "conv": 5, "beta": 1.0}, "encoder decoder"),
        ],
    )
]

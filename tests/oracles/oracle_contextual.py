"""Positions that depend on the words: CoPE, CABLE and the forgetting bias."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def softplus(x: float) -> float:
    return np.logaddexp(0, x)


def between(z: np.ndarray, p: float) -> float:
    """Return the value of z at the real index p, by linear interpolation between the two neighbouring entries."""
    part = p - math.floor(p)
    return (1 - part) * z[math.floor(p)] + part * z[math.ceil(p)]


def row_cope(q, k, column, seen, at):
    """Contextual positions (Golovneva et al. 2024): the distance of a key is the sum of the gates from the query to the key."""
    content = {row: product(q[column], k[row], None, None, at) for row in seen}
    gates = {row: 1 / (1 + math.exp(-logit)) for row, logit in content.items()}
    size = 1 if at["scale"] == "paper" else 1 / math.sqrt(len(q[column]))
    end = max(seen) if at.site == "cross" else column  # in cross-attention, distances start at the last word of the source
    out = []
    for s in seen:
        p = sum(gates[j] for j in seen if min(s, end) <= j <= max(s, end))
        table = at.own("table" if s <= end else "right_table")
        out.append(content[s] + size * between(table @ q[column], min(p, at["largest"] - 1)))
    return out


def increment(name: str, row: int, at) -> float:
    """Return w . x + b for the input of a word, before softplus."""
    return at.own(f"{name}weight") @ at.inputs[1][row] + at.own(f"{name}offset")


def row_cable(q, k, column, seen, at):
    """Context-aware biases (Veisi et al. 2025): the bias is -g(t) |c(t) - c(s)|.

    c(t) is the sum of f(w . x + b) over all words up to t. f is softplus or ReLU. g(t) is 1, or softplus(v . x + c) of word t.
    """

    def c(t):
        function = softplus if at["increments"] == "softplus" else lambda x: max(x, 0.0)
        return sum(function(increment("", j, at)) for j in seen if j <= t)

    factor = softplus(at.own("query_weight") @ at.inputs[0][column] + at.own("query_offset")) if at["weights"] else 1.0
    return [product(q[column], k[s], column, s, at) - factor * abs(c(column) - c(s)) for s in seen]


def row_forgetting(q, k, column, seen, at):
    """Forget gates (Lin et al. 2025): the bias of a key is the sum of the logarithms of the gates from the key to the query."""

    def forgotten(first, last, name):
        """Return the sum of the logarithms of the gates of all words after `first`, up to and including `last`."""
        return sum(-softplus(-increment(name, j, at)) for j in seen if first < j <= last)

    biases = [forgotten(s, column, "") if s <= column else forgotten(column, s, "right_") for s in seen]
    return [product(q[column], k[s], column, s, at) + bias for s, bias in zip(seen, biases)]


GATED = {
    "defaults": {"share": "none"},
    "cases": [
        ({}, "encoder decoder"),
        ({"share": "heads"}, "encoder decoder"),
        ({"share": "layers"}, "encoder"),
        ({"share": "all"}, "decoder"),
    ],
}
ORACLES = [
    Oracle(
        "cope",
        row=row_cope,
        defaults={"largest": 64, "scale": "paper", "share": "heads"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"largest": 2}, "encoder decoder cross"),
            ({"largest": 3, "share": "none"}, "encoder decoder cross"),
            ({"largest": 4, "share": "layers"}, "encoder"),
            ({"largest": 3, "scale": "code"}, "encoder decoder cross"),
        ],
    ),
    Oracle(
        "cable",
        row=row_cable,
        defaults={**GATED["defaults"], "increments": "softplus", "weights": False},
        cases=[
            *GATED["cases"],
            ({"increments": "relu"}, "encoder decoder"),
            ({"increments": "relu", "weights": True}, "encoder decoder"),
            ({"weights": True, "share": "heads"}, "decoder"),
        ],
    ),
    Oracle(
        "forgetting",
        row=row_forgetting,
        defaults={**GATED["defaults"], "start": 5.0},
        cases=[*GATED["cases"], ({"start": 0.0}, "encoder decoder")],
    ),
]

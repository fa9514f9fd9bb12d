"""A Gaussian bias with a predicted centre and window (Yang et al. 2018)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def row(q, k, column, seen, at):
    t = at.query_ids[column]
    size = t + 1 if at.causal else max(at.key_ids[s] for s in at.real) + 1
    mean = sum(k[s] for s in seen if at.key_ids[s] <= t or not at.causal) / max(
        sum(at.key_ids[s] <= t or not at.causal for s in seen), 1
    )
    centre, window = t, at["width"]
    if at["centre"] == "predicted":
        centre = (size - 1) * sigmoid(at.own("centre") @ np.tanh(at.own("query_weight") @ q[column]))
    if at["window"] == "query":
        window = size * sigmoid(at.own("window") @ np.tanh(at.own("query_weight") @ q[column])) + 0.1
    if at["window"] == "layer":
        window = size * sigmoid(at.own("window") @ np.tanh(at.own("key_weight") @ mean)) + 0.1
    return [product(q[column], k[s], t, s, at) - 2 * ((at.key_ids[s] - centre) / window) ** 2 for s in seen]


ORACLES = [
    Oracle(
        "localness",
        row=row,
        defaults={"centre": "predicted", "window": "query", "width": 10, "share": "heads"},
        cases=[
            ({}, "encoder decoder"),
            ({"centre": "query"}, "encoder decoder"),
            ({"window": "layer"}, "encoder decoder"),
            ({"window": "fixed", "width": 3}, "encoder decoder"),
            ({"centre": "query", "window": "layer"}, "encoder"),
            ({"share": "none"}, "encoder"),
            ({"share": "layers"}, "encoder"),
            ({"share": "all"}, "decoder"),
        ],
        atol=1e-6,
    )
]

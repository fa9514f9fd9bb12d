"""Adaptive-T5 (Wu et al. 2021), as in the authors' code: a network of 1 - exp(-c a / n) for each head and direction."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def score(q, k, t, s, at):
    side = 1 if s > t else 0
    if at.site == "decoder" and side == 1:
        return math.nan
    x = np.array([1 - math.exp(-max(at.own("slope")[side], 0) * abs(s - t) / at["length"])])
    for number in (1, 2):
        x = at.own(f"weight{number}")[side] @ x + at.own(f"bias{number}")[side]
        x = 1 / (1 + np.exp(-x)) if at["activation"] == "sigmoid" else np.maximum(x, 0)
    (bias,) = at.own("weight3")[side] @ x + at.own("bias3")[side]
    return product(q, k, t, s, at) + bias


ORACLES = [
    Oracle(
        "soft_t5",
        score=score,
        defaults={"width": 16, "second": 4, "activation": "sigmoid", "length": 256.0, "dropout": 0.5, "share": "layers"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"width": 3, "second": 2, "length": 4.0}, "encoder decoder cross"),
            ({"activation": "relu", "length": 2.0, "share": "none"}, "encoder decoder"),
            ({"dropout": 0.1, "length": 9.0}, "decoder"),
        ],
        real=True,
    )
]

"""DA-Transformer (Wu, Wu and Huang 2021): ReLU of the product q . k, multiplied by a learned sigmoid of the distance."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def score(q, k, t, s, at):
    w, v = at.own("weight"), at.own("offset")
    # (1 + exp(v)) / (1 + exp(v - w |s - t|)), computed with logarithms because far distances overflow
    rescaling = math.exp(np.logaddexp(0, v) - np.logaddexp(0, v - w * abs(s - t)))
    return max(q @ k, 0.0) * rescaling / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "da",
        score=score,
        defaults={"share": "none"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"share": "heads"}, "encoder"),
            ({"share": "layers"}, "decoder"),
            ({"share": "all"}, "cross"),
        ],
        real=True,
    )
]

"""Polar positions (Gopalakrishnan et al. 2025): words determine magnitudes, positions determine angles."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def score(q, k, t, s, at):
    width = int(len(q) * at["fraction"])
    size_q, size_k = np.logaddexp(0, q), np.logaddexp(0, k)
    total = 0.0
    for i in range(len(q)):
        if i < width:
            angle = (t - s) * at["base"] ** (-i / width) - at.own("phase")[i]
            total += size_q[i] * size_k[i] * math.cos(angle)
        else:
            total += q[i] * k[i]
    return total / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "pope",
        score=score,
        defaults={"base": 10000.0, "fraction": 1.0, "share": "layers", "start": "zero"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"base": 20.0, "share": "none"}, "encoder decoder"),
            ({"fraction": 0.75, "share": "heads"}, "encoder cross"),
            ({"start": "uniform", "share": "all"}, "encoder decoder cross"),
        ],
        real=True,
        atol=1e-6,  # tables are float32
    )
]

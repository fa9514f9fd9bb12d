"""Pairs of channels multiplied by mixtures of sines and cosines (FoPE, Hua et al. 2024)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def placed(x, position, at):
    half, out = len(x) // 2, x.copy()
    theta = at["base"] ** (-2 * np.arange(half) / len(x))
    theta = theta[theta >= 2 * math.pi / at["cutoff"]]
    sines = np.sin(position * theta) @ at.parameters["sines"][at.head]
    cosines = np.cos(position * theta) @ at.parameters["cosines"][at.head]
    for j in range(half):
        mixed = j < len(sines)
        cos, sin = (cosines[j], sines[j]) if mixed else (1.0, 1.0 if at["zero"] == "code" else 0.0)
        out[j] = x[j] * cos - x[j + half] * sin
        out[j + half] = x[j + half] * cos + x[j] * sin
    return out


def score(q, k, t, s, at):
    return placed(q, t, at) @ placed(k, s, at) / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "fope",
        score=score,
        defaults={"cutoff": 512.0, "gain": 0.3, "zero": "paper", "base": 10000.0},
        cases=[
            ({}, "encoder decoder cross"),
            ({"cutoff": 30.0, "gain": 0.6}, "encoder decoder cross"),
            ({"zero": "code", "base": 50.0}, "encoder decoder"),
        ],
        real=True,
        atol=2e-5,  # tables are float32
    )
]

"""Rotary positions (Su et al. 2021)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def rotated(x: np.ndarray, position: float, layout: str, fraction: float, base: float) -> np.ndarray:
    width = int(len(x) * fraction) // 2 * 2  # whole pairs
    out = x.copy()
    for i in range(width // 2):
        angle = position * base ** (-2 * i / width)
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return out


def score(q, k, t, s, at):
    how = at["layout"], at["fraction"], at["base"]
    return rotated(q, t, *how) @ rotated(k, s, *how) / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "rope",
        score=score,
        defaults={"layout": "halves", "fraction": 1.0, "base": 10000.0},
        cases=[
            ({}, "encoder decoder cross"),
            ({"layout": "interleaved"}, "encoder cross"),
            ({"fraction": 0.5}, "encoder decoder"),
            ({"layout": "interleaved", "fraction": 0.75, "base": 20.0}, "encoder"),
        ],
        real=True,
        atol=1e-6,  # tables are float32
    )
]

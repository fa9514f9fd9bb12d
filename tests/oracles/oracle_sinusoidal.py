"""Sinusoids (Vaswani et al. 2017) with the layouts, frequencies and origins of the paper and of fairseq."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def sinusoid(position: float, width: int, layout: str, grid: str, base: float = 10000.0) -> np.ndarray:
    half = width // 2
    vector = np.zeros(width)  # an odd width ends with a zero, as in fairseq
    for k in range(half):
        # The lowest frequency of the paper is slightly above 1/base. In fairseq and tensor2tensor it is exactly 1/base.
        angle = position * (base ** (-2 * k / width) if grid == "paper" else base ** (-k / max(half - 1, 1)))
        sine, cosine = (2 * k, 2 * k + 1) if layout == "interleaved" else (k, half + k)
        vector[sine], vector[cosine] = math.sin(angle), math.cos(angle)
    return vector


def embed(x, ids, at):
    origin = at.padding_idx + 1 if at["origin"] == "fairseq" else 0
    rows = [x[i] + sinusoid(t + origin, x.shape[1], at["layout"], at["grid"], at["base"]) for i, t in enumerate(ids)]
    return np.array(rows)


ORACLES = [
    Oracle(
        "sinusoidal",
        embed=embed,
        defaults={"layout": "halves", "grid": "fairseq", "origin": "fairseq", "base": 10000.0},
        cases=[
            ({}, "encoder decoder"),
            ({"layout": "interleaved"}, "encoder"),
            ({"grid": "paper"}, "encoder"),
            ({"origin": "zero"}, "decoder"),
            ({"layout": "interleaved", "grid": "paper", "origin": "zero"}, "encoder decoder"),
            ({"base": 50.0}, "encoder"),
        ],
        atol=1e-6,  # tables are float32
    )
]

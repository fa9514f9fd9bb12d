"""Products of queries with wavelets of the distance (Oka et al. 2025)."""

import math

from fairseq_posenc.testing.reference import Oracle


def ricker(z: float) -> float:
    return (1 - z * z) * math.exp(-z * z / 2)


def score(q, k, t, s, at):
    total, scales = 0.0, at["scales"] or min(8, len(q) // 2)
    for i in range(len(q)):
        scale, shift = 2 ** (i % scales), i // scales
        total += q[i] * (k[i] + ricker((t - s - shift) / scale))
    return total / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "wavelet",
        score=score,
        defaults={"scales": None},
        cases=[({}, "encoder decoder"), ({"scales": 3}, "encoder decoder"), ({"scales": 1}, "encoder decoder")],
        real=True,
        atol=1e-6,  # wavelets are float32
    )
]

"""Input-level methods made of sinusoids: mvPE, scaled sinusoids, learnable Fourier features."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear

from .oracle_sinusoidal import sinusoid


def embed_mvpe(x, ids, at):
    return np.array([x[i] + sinusoid(at["k"] * t, x.shape[1], "interleaved", "paper") for i, t in enumerate(ids)])


def embed_scaled(x, ids, at):
    (scale,) = at.parameters["scale_of_sinusoids"]
    return np.array([x[i] + scale * sinusoid(t, x.shape[1], "halves", "paper") for i, t in enumerate(ids)])


def gelu(x: float) -> float:
    return x / 2 * (1 + math.erf(x / math.sqrt(2)))


def embed_fourier(x, ids, at):
    def parameter(name):
        return at.parameters[name]

    rows = []
    for i, t in enumerate(ids):
        waves = [math.cos(w * t) for w in parameter("frequencies")] + [math.sin(w * t) for w in parameter("frequencies")]
        hidden = linear(np.array(waves) / math.sqrt(len(waves)), parameter("first.weight"), parameter("first.bias"))
        rows.append(
            x[i] + linear(np.array([gelu(unit) for unit in hidden]), parameter("second.weight"), parameter("second.bias"))
        )
    return np.array(rows)


ORACLES = [
    Oracle(
        "mvpe",
        embed=embed_mvpe,
        defaults={"k": 1000.0},
        cases=[({}, "encoder decoder"), ({"k": 1.0}, "encoder"), ({"k": 2.5}, "decoder")],
        atol=1e-6,  # tables are float32
    ),
    Oracle(
        "scaled_sinusoidal",
        embed=embed_scaled,
        defaults={"start": 1.0},
        cases=[({}, "encoder decoder"), ({"start": 0.25}, "encoder")],
        atol=1e-6,
    ),
    Oracle(
        "fourier",
        embed=embed_fourier,
        defaults={"features": 768, "hidden": 32, "gamma": 10.0},
        cases=[({}, "encoder decoder"), ({"features": 6, "hidden": 5}, "encoder decoder"), ({"gamma": 2.0}, "encoder")],
    ),
]

"""Positions in evaluation, for the methods that draw random positions in training: SHAPE, randomised positions and CAPE.

tests/oracles/test_moved.py compares the random positions in training with the equations.
"""

from fractions import Fraction

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid


def sinusoids(x, positions, at):
    if at["vectors"] == "none":
        return x
    return np.array([x[i] + sinusoid(t, x.shape[1], "interleaved", "paper") for i, t in enumerate(positions)])


def position_of_shape(t, at):
    return t + at["shift"] if at["start"] == "K" else t


def position_of_randomised(t, at):
    count = at["factor"] * at.max_positions
    stride, room = at["stride"] or max(count // 32, 1), count - at.max_positions
    steps = (stride - 1) * t
    return t + (int(Fraction(room * steps, room + steps)) if steps else 0)


def position_of_cape(t, at):
    return t * at["ratio"]


ORACLES = [
    Oracle(
        "shape",
        embed=sinusoids,
        position=position_of_shape,
        defaults={"shift": 500, "start": "0", "vectors": "sinusoidal"},
        cases=[
            ({}, "encoder decoder"),
            ({"start": "K"}, "encoder"),
            ({"shift": 3, "start": "K"}, "decoder"),
            ({"vectors": "none"}, "encoder"),
        ],
        atol=1e-6,  # tables are float32
    ),
    Oracle(
        "randomised",
        embed=sinusoids,
        position=position_of_randomised,
        defaults={"factor": 2, "stride": None, "vectors": "sinusoidal"},
        cases=[
            ({}, "encoder decoder"),
            ({"stride": 3}, "encoder"),
            ({"factor": 9}, "decoder"),
            ({"vectors": "none"}, "decoder"),
        ],
        reach=12,
        atol=1e-6,
    ),
    Oracle(
        "cape",
        embed=sinusoids,
        position=position_of_cape,
        defaults={"shift": 5.0, "jitter": 0.5, "scale": 1.0, "ratio": 1.0, "vectors": "sinusoidal"},
        cases=[
            ({}, "encoder decoder"),
            ({"ratio": 1.25}, "encoder decoder"),
            ({"shift": 2.0, "jitter": 0.25, "scale": 1.5}, "encoder"),
            ({"vectors": "none"}, "decoder"),
        ],
        atol=1e-6,
    ),
]

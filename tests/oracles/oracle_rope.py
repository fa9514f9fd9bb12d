"""Rotary positions (Su et al. 2021)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def rotated(x: np.ndarray, position: float, layout: str, fraction: float, base: float, frequency=None) -> np.ndarray:
    """Rotate pair i by the angle position * theta_i, where theta_i = base^(-2i/d_r).

    d_r is the number of rotated channels.

    If `frequency` is given, the angle is position * frequency(i, theta_i).
    """
    width = int(len(x) * fraction) // 2 * 2  # an even number of channels
    out = x.copy()
    for i in range(width // 2):
        theta = base ** (-2 * i / width)
        angle = position * (theta if frequency is None else frequency(i, theta))
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return out


def kept(i: int, theta: float, pairs: int, at) -> bool:
    """Return whether pair i rotates.

    Two conditions must be true. i is less than `keep` * `pairs`, rounded down. The wavelength of the pair is at most the
    cutoff.
    """
    within = at["cutoff"] is None or 2 * math.pi / theta <= at["cutoff"]
    return i < math.floor(at["keep"] * pairs) and within


def score(q, k, t, s, at):
    pairs = int(len(q) * at["fraction"]) // 2

    def frequency(i, theta):
        if at["frequencies"] == "learned":
            return theta * math.exp(at.own("log_factor")[i] / 16)
        return theta if kept(i, theta, pairs, at) else 0.0

    if at["heads"] is not None and str(at.head) not in at["heads"].split("/"):
        return product(q, k, t, s, at)
    how = at["layout"], at["fraction"], at["base"], frequency
    return rotated(q, t, *how) @ rotated(k, s, *how) / math.sqrt(len(q))


DEFAULTS = {
    "layout": "halves",
    "fraction": 1.0,
    "base": 10000.0,
    "keep": 1.0,
    "cutoff": None,
    "frequencies": "fixed",
    "share": "all",
    "heads": None,
}
ORACLES = [
    Oracle(
        "rope",
        score=score,
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder cross"),
            ({"layout": "interleaved"}, "encoder cross"),
            ({"fraction": 0.5}, "encoder decoder"),
            ({"layout": "interleaved", "fraction": 0.75, "base": 20.0}, "encoder"),
            ({"keep": 0.5}, "encoder decoder cross"),
            ({"heads": "1/2"}, "encoder decoder cross"),
            ({"keep": 0.5, "layout": "interleaved"}, "encoder"),
            ({"cutoff": 40, "base": 50.0}, "encoder decoder cross"),
            ({"cutoff": 30, "base": 20.0, "layout": "interleaved"}, "encoder"),  # this cutoff keeps all pairs
        ],
        real=True,
        atol=1e-6,  # tables are float32
    ),
    Oracle(
        "rope",
        score=score,
        defaults=DEFAULTS,
        cases=[
            ({"frequencies": "learned"}, "encoder decoder cross"),
            ({"frequencies": "learned", "share": "none", "layout": "interleaved"}, "encoder decoder cross"),
            ({"frequencies": "learned", "share": "heads", "fraction": 0.5, "base": 50.0}, "encoder"),
            ({"frequencies": "learned", "heads": "3"}, "encoder decoder"),
        ],
        real=True,
    ),
]

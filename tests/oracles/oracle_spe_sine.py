"""Sinusoidal stochastic positions (Liutkus et al. 2021). The score is the expectation over the random codes."""

import math

from fairseq_posenc.testing.reference import Oracle


def kernel(x: float, channel: int, at) -> float:
    """Return P_i(x), with x = t - s: the factor of q_i k_i in the score, without the gate."""
    frequencies, offsets, gains = (at.parameters[name][at.head, channel] for name in ("frequencies", "offsets", "gains"))
    total = 0.0
    for frequency, offset, gain in zip(frequencies, offsets, gains):
        frequency, gain = 1 / (1 + math.exp(-frequency)) / 2, math.log1p(math.exp(gain))
        total += gain**2 * math.cos(2 * math.pi * frequency * x + offset)
    return total / (2 * len(frequencies))


def score(q, k, t, s, at):
    total = 0.0
    for i in range(len(q)):
        gate = 1 / (1 + math.exp(-at.parameters["gates"][at.layer, at.head, i])) if at["gated"] else 0.0
        total += q[i] * k[i] * ((1 - gate) * kernel(t - s, i, at) + gate)
    return total / math.sqrt(len(q))


DEFAULTS = {"sines": 5, "attention": "softmax", "exact": True, "realizations": 64, "gated": True}
ORACLES = [
    Oracle(
        "spe_sine",
        score=score,
        defaults=DEFAULTS,
        cases=[({}, "encoder decoder cross"), ({"sines": 1, "gated": False}, "encoder decoder cross")],
        real=True,
    ),
    Oracle(
        "spe_sine",
        score=score,
        defaults=DEFAULTS,
        random=True,
        cases=[
            ({"exact": False, "realizations": 64}, "encoder decoder cross"),
            ({"exact": False, "realizations": 64, "gated": False, "sines": 2}, "encoder"),
        ],
    ),
    Oracle(
        "spe_sine",
        score=score,
        defaults=DEFAULTS,
        random=True,
        cases=[({"attention": "linear", "exact": False, "realizations": 8}, "encoder decoder cross")],
    ),
]

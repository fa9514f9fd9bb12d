"""Biases that are functions of the distance: KERPLE, Sandwich, FIRE and the dynamic position bias."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, linear, product


def softplus(x: float) -> float:
    return np.logaddexp(0, x)


def sigmoid(x):
    return (1 + np.tanh(x / 2)) / 2  # computed without an exponential that could overflow


def raw(name: str, t, s, at) -> float:
    """Return a learned parameter of KERPLE, before softplus or sigmoid is applied.

    With sides=apart, keys on the right have a second parameter, except in a decoder.
    """
    later = at["sides"] == "apart" and at.site != "decoder" and s > t
    return at.own(name)[1 if later else 0]


def score_kerple_log(q, k, t, s, at):
    power, rate = (0.01 + softplus(raw(name, t, s, at)) for name in ("power", "rate"))
    return product(q, k, t, s, at) - power * math.log(1 + rate * abs(s - t))


def score_kerple_power(q, k, t, s, at):
    power = 0.01 + 1.99 * sigmoid(raw("power", t, s, at))  # the power of this kernel is at most 2
    rate = 0.01 + softplus(raw("rate", t, s, at))
    return product(q, k, t, s, at) - rate * abs(s - t) ** power


def score_sandwich(q, k, t, s, at):
    """Add a bias to the score.

    The bias is the product of the sinusoids of query and key position, minus the largest value of this product. For head h from
    1 to H, the bias is divided by 8 h / H.
    """
    half, first = at["width"] // 2, at["first"]
    total = sum(math.cos((s - t) / 10000 ** (j / half)) for j in range(first, first + half))
    return product(q, k, t, s, at) + (total - half) / (8 * (at.head + 1) / at.heads)


def score_fire(q, k, t, s, at):
    """Add the output of an MLP to the score.

    The MLP reads psi(|s - t|) / psi(max(t, threshold)), where t is the position of the query and psi(x) = ln(|slope x| + 1).
    """

    def own(name):
        return at.parameters[name] if at["share"] == "layers" else at.parameters[name][at.layer]

    def psi(x):
        return math.log(abs(own("slope") * x) + 1)

    threshold = abs(own("multiplier") * at["threshold"])
    ratio = psi(abs(s - t)) / (psi(max(t, threshold)) + 1e-6)
    first, second = ((own(f"mlp.{i}.weight"), own(f"mlp.{i}.bias")) for i in (0, 2))
    return product(q, k, t, s, at) + linear(np.maximum(linear(np.array([ratio]), *first), 0), *second)[at.head]


def score_dynamic_bias(q, k, t, s, at):
    delta = s - t
    hidden = np.array([math.copysign(math.log1p(abs(delta)), delta) if at["log"] else float(delta)])
    for i in range(at["depth"]):
        hidden = linear(hidden, at.parameters[f"layers.{i}.weight"], at.parameters[f"layers.{i}.bias"])
        if at["norm"]:
            hidden = (hidden - hidden.mean()) / math.sqrt(hidden.var() + 1e-5)
            hidden = hidden * at.parameters[f"norms.{i}.weight"] + at.parameters[f"norms.{i}.bias"]
        hidden = np.maximum(hidden, 0) if at["activation"] == "relu" else hidden * sigmoid(hidden)
    last = at["depth"]
    bias = linear(hidden, at.parameters[f"layers.{last}.weight"], at.parameters[f"layers.{last}.bias"])[at.head]
    return product(q, k, t, s, at) + (16 * sigmoid(bias) if at["bounded"] else bias)


KERPLE = {
    "defaults": {"sides": "same", "share": "layers"},
    "cases": [
        ({}, "encoder decoder cross"),
        ({"sides": "apart"}, "encoder cross"),
        ({"share": "none"}, "decoder"),
        ({"sides": "apart", "share": "none"}, "encoder"),
        ({"sides": "apart", "share": "heads"}, "cross"),
        ({"share": "all"}, "encoder"),
    ],
    "real": True,
}
ORACLES = [
    Oracle("kerple_log", score=score_kerple_log, **KERPLE),
    Oracle("kerple_power", score=score_kerple_power, **KERPLE),
    Oracle(
        "sandwich",
        score=score_sandwich,
        defaults={"width": 128, "first": 1},
        cases=[({}, "encoder decoder cross"), ({"width": 6}, "encoder cross"), ({"first": 0}, "encoder decoder cross")],
        real=True,
        atol=1e-5,  # rounded to float32
    ),
    Oracle(
        "fire",
        score=score_fire,
        defaults={"hidden": 32, "threshold": 512.0, "share": "layers"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"threshold": 2.0}, "encoder decoder cross"),  # the sentences of the test are longer than this threshold
            ({"hidden": 9, "threshold": 20.0}, "encoder decoder"),
            ({"share": "none"}, "encoder decoder cross"),
        ],
        real=True,
    ),
    Oracle(
        "dynamic_bias",
        score=score_dynamic_bias,
        defaults={"hidden": 64, "depth": 2, "log": True, "norm": False, "activation": "silu", "bounded": False},
        cases=[
            ({}, "encoder decoder cross"),
            ({"log": False, "hidden": 4, "depth": 1}, "encoder decoder"),
            ({"norm": True}, "encoder cross"),
            ({"hidden": 9, "depth": 3, "norm": True, "log": False}, "encoder decoder"),
            ({"hidden": 9, "depth": 3, "norm": True, "log": False, "activation": "relu"}, "encoder decoder"),
            ({"hidden": 9, "depth": 1, "activation": "relu", "bounded": True}, "encoder cross"),
        ],
        real=True,
    ),
]

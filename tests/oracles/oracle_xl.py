"""Sinusoids of signed distances: Transformer-XL (Dai et al. 2019) and TENER (Yan et al. 2019)."""

import math

from fairseq_posenc.testing.reference import Oracle, split

from .oracle_sinusoidal import sinusoid


def score_xl(q, k, t, s, at):
    u, v = at.own("content_bias"), at.own("position_bias")
    x = t - s if at["clamp"] is None else max(-at["clamp"], min(at["clamp"], t - s))
    r = at.parameters["projection"][at.layer] @ sinusoid(x, len(q) * at.heads, "halves", "paper")
    return ((q + u) @ k + (q + v) @ split(r, at.head, at.heads)) / math.sqrt(len(q))


def score_tener(q, k, t, s, at):
    """Compute the score. Without a projection of keys, k contains the input channels of this head."""

    def r(x):
        return sinusoid(x, len(q), "halves", "paper" if at["grid"] == "paper" else "fairseq")

    u, v = at.own("content_bias"), at.own("position_bias")
    total = (q + u) @ k + (q + v) @ r(t - s if at["sign"] == "paper" else s - t)
    if at["key_term"]:  # in the authors' code, this term has the distance t - s, also if the term above has s - t
        total += k @ r(t - s)
    return total / math.sqrt(len(q)) if at["scaled"] else total


ORACLES = [
    Oracle(
        "xl",
        score=score_xl,
        defaults={"share": "layers", "clamp": None},
        cases=[
            ({}, "encoder decoder cross"),
            ({"clamp": 3}, "encoder decoder cross"),
            ({"share": "none"}, "encoder decoder"),
            ({"share": "none", "clamp": 1}, "cross"),
        ],
        real=True,
        atol=1e-5,  # waves are float32
    ),
    Oracle(
        "tener",
        score=score_tener,
        defaults={"key": "linear", "key_term": False, "sign": "paper", "scaled": False, "grid": "paper"},
        cases=[
            ({}, "encoder decoder cross"),
            ({"key": "identity"}, "encoder decoder cross"),
            ({"key_term": True, "sign": "code", "grid": "code"}, "encoder decoder cross"),
            ({"scaled": True, "key_term": True}, "encoder decoder"),
            ({"key": "identity", "key_term": True, "sign": "code", "scaled": True}, "encoder"),
        ],
        real=True,
        atol=1e-5,  # waves are float32
    ),
]

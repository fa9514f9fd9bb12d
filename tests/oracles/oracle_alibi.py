"""Linear biases (Press et al. 2022) and their forms for encoders."""

import math

from fairseq_posenc.testing.reference import Oracle, product


def slopes(heads: int) -> list:
    power = 2 ** int(math.log2(heads))
    found = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    # Other numbers of heads borrow every second slope of twice as many.
    return found if power == heads else found + slopes(2 * power)[0::2][: heads - power]


def score(q, k, t, s, at):
    if at.site == "decoder" and s > t:
        return math.nan
    ratio = at["ratio"] if at.site == "cross" else 1
    return product(q, k, t, s, at) - slopes(at.heads)[at.head] * abs(s - ratio * t)


def score_symmetric(q, k, t, s, at):
    return product(q, k, t, s, at) - slopes(at.heads)[at.head] * abs(s - t)


def score_nonsymmetric(q, k, t, s, at):
    half = at.heads // 2
    return product(q, k, t, s, at) - slopes(half)[at.head % half] * abs(s - t)


def one_way(t, s, at):
    return s <= t if at.head < at.heads // 2 else s >= t


def score_learned(q, k, t, s, at):
    if at.site == "decoder" and s > t:
        return math.nan
    x = at.parameters["left" if s <= t else "right"][at.head]
    slope = math.exp(x) if at["slope"] == "exponential" else 1 / (1 + math.exp(-x))
    return product(q, k, t, s, at) - slope * abs(s - t)


ORACLES = [
    Oracle(
        "alibi",
        score=score,
        defaults={"ratio": 1.0},
        cases=[({}, "decoder cross"), ({"ratio": 1.5}, "cross"), ({"ratio": 0.0}, "cross")],
        real=True,
    ),
    Oracle("alibi_symmetric", score=score_symmetric, cases=[({}, "encoder cross")], real=True),
    Oracle("alibi_nonsymmetric", score=score_nonsymmetric, allowed=one_way, cases=[({}, "encoder")], real=True),
    Oracle(
        "alibi_learned",
        score=score_learned,
        defaults={"slope": "exponential"},
        cases=[({}, "encoder decoder cross"), ({"slope": "sigmoid"}, "encoder decoder cross")],
        real=True,
    ),
]

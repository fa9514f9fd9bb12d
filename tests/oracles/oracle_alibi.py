"""Linear biases (Press et al. 2022) and their forms for encoders."""

import math

from fairseq_posenc.testing.reference import Oracle, product


def slopes(heads: int) -> list:
    power = 2 ** int(math.log2(heads))
    found = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    # If the number of heads is not a power of two, `heads - power` slopes are missing. The missing slopes are slopes
    # 1, 3, 5, ... of a model with `2 * power` heads.
    return found if power == heads else found + slopes(2 * power)[0::2][: heads - power]


def uses(at) -> list:
    """Return the heads that have the penalty."""
    return list(range(at.heads)) if at["heads"] is None else [int(head) for head in at["heads"].split("/")]


def penalty(at, distance: float, sides: int = 1) -> float:
    """Return the penalty of this head: the slope times the distance.

    The heads that use the method are divided into `sides` groups of equal size. The slopes of a group of n heads are the
    slopes of a model with n heads.
    """
    used = uses(at)
    if at.head not in used:
        return 0.0
    each = len(used) // sides
    return slopes(each)[used.index(at.head) % each] * distance


def score(q, k, t, s, at):
    if at.site == "decoder" and s > t:
        return math.nan
    ratio = at["ratio"] if at.site == "cross" else 1
    return product(q, k, t, s, at) - penalty(at, abs(s - ratio * t))


def score_symmetric(q, k, t, s, at):
    return product(q, k, t, s, at) - penalty(at, abs(s - t))


def score_nonsymmetric(q, k, t, s, at):
    return product(q, k, t, s, at) - penalty(at, abs(s - t), sides=2)


def one_way(t, s, at):
    used = uses(at)
    if at.head not in used:
        return True
    return s <= t if used.index(at.head) < len(used) // 2 else s >= t


def score_learned(q, k, t, s, at):
    if at.site == "decoder" and s > t:
        return math.nan
    if at.head not in uses(at):
        return product(q, k, t, s, at)
    x = at.parameters["left" if s <= t else "right"][uses(at).index(at.head)]
    slope = math.exp(x) if at["slope"] == "exponential" else 1 / (1 + math.exp(-x))
    return product(q, k, t, s, at) - slope * abs(s - t)


ORACLES = [
    Oracle(
        "alibi",
        score=score,
        defaults={"ratio": 1.0, "heads": None},
        cases=[
            ({}, "decoder cross"),
            ({"ratio": 1.5}, "cross"),
            ({"ratio": 0.0}, "cross"),
            ({"heads": "0/2"}, "decoder cross"),
            ({"heads": "1", "ratio": 1.5}, "cross"),
        ],
        real=True,
    ),
    Oracle(
        "alibi_symmetric",
        score=score_symmetric,
        defaults={"heads": None},
        cases=[({}, "encoder cross"), ({"heads": "1/2/3"}, "encoder cross")],
        real=True,
    ),
    Oracle(
        "alibi_nonsymmetric",
        score=score_nonsymmetric,
        allowed=one_way,
        defaults={"heads": None},
        cases=[({}, "encoder"), ({"heads": "1/2"}, "encoder")],
        real=True,
    ),
    Oracle(
        "alibi_learned",
        score=score_learned,
        defaults={"slope": "exponential", "heads": None},
        cases=[
            ({}, "encoder decoder cross"),
            ({"slope": "sigmoid"}, "encoder decoder cross"),
            ({"heads": "0/3"}, "encoder decoder"),
        ],
        real=True,
    ),
]

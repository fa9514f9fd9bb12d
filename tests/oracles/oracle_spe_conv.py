"""Convolutional stochastic positions (Liutkus et al. 2021). The score is the expectation over the random codes."""

import math

from fairseq_posenc.testing.reference import Oracle


def kernel(x: int, channel: int, at) -> float:
    """Return P_i(x) with x = t - s: the cross-correlation of the query filter and the key filter of channel i."""
    of_query, of_key = (at.parameters[name][at.head, channel] for name in ("query_filter", "key_filter"))
    length = len(of_key)
    return sum(of_key[p] * of_query[p + x] for p in range(length) if 0 <= p + x < length)


def score(q, k, t, s, at):
    total = 0.0
    for i in range(len(q)):
        gate = 1 / (1 + math.exp(-at.parameters["gates"][at.layer, at.head, i])) if at["gated"] else 0.0
        total += q[i] * k[i] * ((1 - gate) * kernel(t - s, i, at) + gate)
    return total / math.sqrt(len(q))


DEFAULTS = {"length": 128, "attention": "softmax", "realizations": 64, "gated": True}
ORACLES = [
    Oracle(
        "spe_conv",
        score=score,
        defaults=DEFAULTS,
        random=True,
        cases=[  # the noise grows with the length of the filters. Longer filters would need too many realizations
            ({"length": 4, "realizations": 128}, "encoder decoder cross"),
            ({"length": 7, "gated": False, "realizations": 128}, "encoder decoder cross"),
            ({"length": 2}, "encoder"),
        ],
    ),
    Oracle(
        "spe_conv",
        score=score,
        defaults=DEFAULTS,
        random=True,
        cases=[({"attention": "linear", "realizations": 8}, "encoder decoder cross")],
    ),
]

"""Composite attention (Chang et al. 2021): self-attention plus dynamic, fixed and depthwise lightweight convolutions."""

import math

from fairseq_posenc.testing.reference import Oracle


def score(q, k, t, s, at):
    reach = at["max_distance"]
    delta = max(-reach, min(reach, s - t))
    products = q @ k + q @ at.own("query_table")[delta + reach]
    if at["key_term"]:
        products += k @ at.own("key_table")[-delta + reach]
    return products / math.sqrt(len(q)) + at.own("bias_table")[delta + reach]


def convolution(values, column, seen, at):
    """Return a depthwise convolution of the values. Keys beyond the kernel are ignored. Their distances are not clipped."""
    reach, t, total = at["max_distance"], at.query_ids[column], at.own("kernel_bias").copy()
    for row in seen:
        delta = at.key_ids[row] - t
        if abs(delta) <= reach:
            total += at.own("kernel")[delta + reach] * values[row]
    return total


DEFAULTS = {"max_distance": 8, "key_term": False, "depthwise": False}
ORACLES = [
    Oracle(
        "chang",
        score=score,
        defaults=DEFAULTS,
        cases=[
            ({}, "encoder decoder cross"),
            ({"max_distance": 2}, "encoder decoder cross"),
            ({"max_distance": 2, "key_term": True}, "encoder decoder cross"),
        ],
    ),
    Oracle(
        "chang",
        score=score,
        plus=convolution,
        defaults=DEFAULTS,
        cases=[
            ({"depthwise": True}, "encoder decoder"),
            ({"max_distance": 1, "key_term": True, "depthwise": True}, "encoder decoder"),
        ],
    ),
]

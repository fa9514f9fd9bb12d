"""Hard-coded Gaussian attention (You, Sun and Iyyer 2020): weights around a fixed neighbour, independent of the words."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle

OFFSETS = {"encoder": (-1, 1), "decoder": (-1, 0), "cross": (-1, 1)}  # offsets of even and odd heads


def weight(t, s, at) -> float:
    """Return the density N(s; gamma t + o, sigma), with the ratio gamma, the offset o of the head, and the deviation sigma.

    With normalise=false, the weights of a query sum to less than 1 near the ends of a sentence.
    """
    ratio = at["ratio"] if at.site == "cross" else 1
    distance = s - (ratio * t + OFFSETS[at.site][at.head % 2])
    sigma = at["deviation"]
    return math.exp(-(distance**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))


def head(values, column, seen, at):
    weights = [weight(at.query_ids[column], at.key_ids[row], at) for row in seen]
    total = sum(weights) if at["normalise"] else 1
    return sum((w / total * values[row] for w, row in zip(weights, seen)), np.zeros(len(values[0])))


ORACLES = [
    Oracle(
        "gaussian",
        head=head,
        defaults={"deviation": 1.0, "ratio": 1.0, "normalise": False},
        cases=[
            ({}, "encoder decoder cross"),
            ({"deviation": 0.6}, "encoder decoder"),
            ({"normalise": True, "deviation": 2.0}, "encoder decoder cross"),
            ({"ratio": 1.3}, "cross"),
            ({"ratio": 0.5, "deviation": 1.5, "normalise": True}, "cross"),
        ],
    )
]

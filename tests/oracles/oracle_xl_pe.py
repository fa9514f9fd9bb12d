"""Positions of the words in the word order of another language (Ding et al. 2020)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, split

from .oracle_sinusoidal import sinusoid


def places(sentence) -> list[int]:
    """Return the position of every token in the word order of the other language."""
    said = [token for word in sentence.order for token, own in enumerate(sentence.words) if own == word]
    return [said.index(token) for token in range(len(sentence.words))]


def waves(number: int, width: int, at) -> np.ndarray:
    form = ("halves", "fairseq") if at["sinusoids"] == "fairseq" else ("interleaved", "paper")
    return sinusoid(number + at.padding_idx + 1, width, *form)


def embed(x, ids, at):
    out = []
    for vector, t, place in zip(x, ids, places(at.sentence)):
        here, other = (waves(number, len(vector), at) for number in (t, place))
        if at["fuse"] == "heads":
            other = 0
        elif at["fuse"] == "tanh":
            mapped = at.parameters["of_place.weight"] @ here + at.parameters["of_other.weight"] @ other
            here, other = np.tanh(mapped + at.parameters["of_place.bias"]), 0
        out.append(vector + here + other)
    return np.array(out)


def score(q, k, t, s, at):
    """Compute the score. The input of the first layer is U + P, the sum of word vectors and position vectors.

    With fuse=heads, some heads of the first layer read U + P'. P' contains the vectors of the positions in the other word
    order. (P' - P) W is therefore added to q and k of these heads. W is the weight of the projection.
    """
    if at["fuse"] == "heads" and at.layer == 0 and at.head < (at["heads"] or at.heads // 2):
        number = places(at.sentence)
        width = len(q) * at.heads
        changes = [waves(number[x], width, at) - waves(x, width, at) for x in (t, s)]
        q, k = (
            vector + split(at.projections[which][0] @ change, at.head, at.heads)
            for vector, which, change in zip((q, k), "qk", changes)
        )
    return q @ k / math.sqrt(len(q))


ORACLES = [
    Oracle(
        "xl_pe",
        embed=embed,
        score=score,
        defaults={"fuse": "sum", "heads": 0, "sinusoids": "fairseq"},
        cases=[
            ({}, "encoder"),
            ({"sinusoids": "paper"}, "encoder"),
            ({"fuse": "tanh"}, "encoder"),
            ({"fuse": "heads"}, "encoder"),
            ({"fuse": "heads", "heads": 3, "sinusoids": "paper"}, "encoder"),
        ],
        atol=1e-5,  # tables are float32
    )
]

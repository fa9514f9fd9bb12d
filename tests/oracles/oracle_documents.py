"""Positions in documents, by loops over words: sentence shifts, sentence vectors, bilevel positions, group attention, UnifPE.

test_documents.py calls these functions with documents. All other tests use one sentence without separators.
"""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product

from .oracle_alibi import slopes
from .oracle_rope import rotated
from .oracle_sinusoidal import sinusoid


def before(words, i, separator) -> int:
    """Count the separators before word i. A separator is the last word of its sentence."""
    return sum(word == separator for word in words[:i])


def opened(words, i, separator) -> int:
    """Count the separators up to and including word i. A separator is the first word of its sentence."""
    return sum(word == separator for word in words[: i + 1])


def inside(words, i, separator) -> int:
    """Count the words between word i and the last separator before word i. Without such a separator, return i."""
    return next((back for back in range(i) if words[i - 1 - back] == separator), i)


def sentences(words, separator) -> int:
    return before(words, len(words), separator) + 1


def waves(x, positions, at):
    if at["vectors"] == "none":
        return x
    return np.array([x[i] + sinusoid(t + at.padding_idx + 1, x.shape[1], "halves", "fairseq") for i, t in enumerate(positions)])


# -- sentence shifts -----------------------------------------------------------------------------------------------------


def shifted(words, i, source, at) -> int:
    sentence, separator = min(before(words, i, at["separator"]), at["segments"] - 1), at["separator"]
    if not at["mean"]:
        return i + at["shift"] * sentence
    count = sentences(source, separator)
    return i + math.ceil(len(source) / count) * min(sentence, count - 1)


SHIFT = Oracle(
    "segment_shift",
    embed=waves,
    defaults={"shift": 8, "mean": False, "separator": "<sep>", "segments": 8, "vectors": "sinusoidal"},
    cases=[
        ({}, "encoder decoder"),
        ({"shift": 3}, "encoder decoder"),
        ({"mean": True}, "encoder decoder"),
        ({"mean": True, "segments": 3}, "decoder"),
        ({"segments": 2}, "encoder"),
        ({"separator": "b"}, "decoder"),
        ({"vectors": "none"}, "encoder"),
    ],
    atol=1e-6,  # tables are float32
)


# -- sentence vectors ----------------------------------------------------------------------------------------------------


def label(words, i, source, at) -> int:
    number = before(words, i, at["separator"])
    return number + 1 if at["count"] == "start" else max(sentences(source, at["separator"]) - number, 1)


def vector(number, width, at, name="table"):
    """Return the sentence vector with this number. The smallest number is 1."""
    if at["vectors"] == "learned":
        table = at.parameters[name]
        return table[min(number, len(table)) - 1]
    if at["vectors"] == "sinusoidal":
        return sinusoid(number, width, "halves", "fairseq")
    return np.eye(width)[min(number, width) - 1]


def with_sentence(x, i, words, source, at):
    """Add the concatenation of a position vector and a sentence vector to the embedding.

    The embedding has d channels. The sentence vector has w channels, and the position vector has d - w channels. w is the
    option `width`, or by default half of d.
    """
    width = at["width"] or len(x) // 2
    positions = sinusoid(i + at.padding_idx + 1, len(x) - width, "halves", "fairseq")
    return x + np.concatenate([positions, vector(label(words, i, source, at), width, at)])


FUSED = Oracle(
    "position_segment",
    embed=lambda x, ids, at: np.array([with_sentence(row, t, ["a"] * (t + 1), ["a"], at) for row, t in zip(x, ids)]),
    defaults={"width": None, "vectors": "sinusoidal", "count": "end", "separator": "<sep>", "segments": 8},
    cases=[
        ({}, "encoder decoder"),
        ({"width": 4}, "encoder decoder"),
        ({"vectors": "learned", "width": 5}, "encoder decoder"),
        ({"vectors": "learned", "segments": 2, "count": "start"}, "encoder decoder"),
        ({"vectors": "onehot", "width": 3}, "encoder decoder"),
        ({"count": "start", "separator": "b"}, "decoder"),
    ],
    atol=1e-6,
)


# -- bilevel positions ---------------------------------------------------------------------------------------------------


def placed(x, i, words, at):
    return x + at.parameters["weight"][min(inside(words, i, at["separator"]), at["longest"] - 1)]


def tags(t, s, words, source, at) -> tuple[int, int]:
    """Return the sentence numbers of a query and a key.

    In cross-attention, the number of the query is the number of the source sentence that is being translated.
    """
    if at.site == "cross":
        return min(opened(words, t, at["separator"]), sentences(source, at["separator"]) - 1), before(source, s, at["separator"])
    return before(words, t, at["separator"]), before(words, s, at["separator"])


def turned(q, k, t, s, words, source, at):
    one, other = tags(t, s, words, source, at)
    return rotated(q, one, "halves", 1.0, at["base"]) @ rotated(k, other, "halves", 1.0, at["base"]) / math.sqrt(len(q))


def apart(t, s, words, source, at):
    one, other = tags(t, s, words, source, at)
    return -at["factor"] * slopes(at.heads)[at.head] * abs(one - other)


def _bilevel(name, option, value):
    return Oracle(
        name,
        embed=lambda x, ids, at: (
            x if at.site == "cross" else np.array([placed(row, t, ["a"] * (t + 1), at) for row, t in zip(x, ids)])
        ),
        defaults={"separator": "<sep>", "longest": 256, option: value},
        cases=[
            ({}, "encoder decoder cross"),
            ({"longest": 3}, "encoder decoder"),
            ({"separator": "b"}, "decoder cross"),
            ({option: 7.0}, "encoder cross"),
        ],
        atol=1e-6,
    )


ROTATED, BIASED = _bilevel("bipe_rope", "base", 10000.0), _bilevel("bipe_alibi", "factor", 96.0)


# -- group attention -----------------------------------------------------------------------------------------------------


def visible(t, s, words, source, at) -> bool:
    if at.site == "decoder":
        return opened(words, t, at["separator"]) == opened(words, s, at["separator"])
    one, other = tags(t, s, words, source, at)
    return one == other


GROUP = Oracle(
    "group",
    score=product,
    defaults={"separator": "<sep>"},
    cases=[({}, "encoder decoder cross"), ({"separator": "b"}, "encoder decoder cross")],
)


# -- UnifPE --------------------------------------------------------------------------------------------------------------


def offset(length, positions, block, gap_before) -> int:
    """Return the first position of a sentence that is placed in the block with number `block`.

    The positions are divided into blocks that are as long as the sentence. The remaining positions do
    not fill a block. They form a gap before the block with number `gap_before`. If twice the length is at least
    `positions`, return 0.
    """
    if 2 * length >= positions:
        return 0
    return block * length + (positions % length if block >= gap_before else 0)


UNIFORM = Oracle(
    "unifpe",
    embed=waves,
    defaults={"range": None, "plain": 0.3, "tie": False, "vectors": "sinusoidal"},
    cases=[
        ({}, "encoder decoder"),
        ({"range": 7}, "encoder"),
        ({"plain": 1.0}, "decoder"),
        ({"tie": True}, "encoder decoder"),
        ({"vectors": "none"}, "decoder"),
    ],
    atol=1e-6,
)

ORACLES = [SHIFT, FUSED, ROTATED, BIASED, GROUP, UNIFORM]

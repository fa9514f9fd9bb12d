"""Sinusoids of the output's length (Takase and Okazaki 2019), equations 32 and 33 of the survey."""

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid


def characters(word: str) -> int:
    """Return the number of printed characters of a token of subword-nmt.

    A token with the marker @@ counts without the marker. A token without the marker ends a word, and counts with one space.
    </s> has no printed characters.
    """
    if word == "</s>":
        return 0
    return len(word) - 2 if word.endswith("@@") else len(word) + 1


def before(column, t, at):
    """Return the length of the target prefix that the decoder has read up to this column. The first </s> does not count."""
    return t if at["unit"] == "token" else sum(characters(word) for word in at.words[: column + 1])


def difference(x, ids, at):
    rows = []
    for column, t in enumerate(ids):
        remaining = max(at.side["target_length"] - before(column, t, at), at["min_remaining"] or 0)
        rows.append(x[column] + sinusoid(remaining + at["offset"], x.shape[1], at["layout"], at["grid"]))
    return np.array(rows)


def ratio(x, ids, at):
    rows = []
    for column, t in enumerate(ids):
        place = before(column, t, at) + 1 + at["offset"]
        rows.append(x[column] + sinusoid(place, x.shape[1], at["layout"], at["grid"], base=at.side["target_length"] + 1))
    return np.array(rows)


def lengths(b: int) -> dict:
    """Return the requested length of sentence b.

    With unit=token, sentence 0 reaches the requested length, and sentence 1 exceeds the requested length. The requested length
    of sentence 2 is 0.
    """
    return {"target_length": (5, 2, 0)[b]}


_SHARED = {"unit": "token", "offset": 0, "layout": "halves", "grid": "fairseq"}
_CASES = [
    ({}, "decoder"),
    ({"unit": "char"}, "decoder"),
    ({"offset": 2}, "decoder"),
    ({"layout": "interleaved", "grid": "paper"}, "decoder"),
]
ORACLES = [
    Oracle(
        "ldpe",
        embed=difference,
        side=lengths,
        defaults={**_SHARED, "min_remaining": None},
        cases=[*_CASES, ({"min_remaining": -3}, "decoder"), ({"min_remaining": -3, "unit": "char", "offset": 2}, "decoder")],
        atol=1e-6,  # sinusoids are float32
    ),
    Oracle("lrpe", embed=ratio, side=lengths, defaults=_SHARED, cases=_CASES, atol=1e-6),
]

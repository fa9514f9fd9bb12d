"""Scores in addition to BLEU and chrF: sacreBLEU's TER, and sentence scores that another program has computed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...common.files import read_text
from ...core import PositionError
from .sentences import pack_json, unpack_json

TER = "ter"

_RESERVED = ("bleu", "chrf", TER)
_UNSPACED = ("zh", "char", "ja-mecab", "ko-mecab")  # tokenizers of sacreBLEU for text without spaces between words
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,40}")
_LARGEST = 10**6  # maximum absolute value of a sentence score
_MOST_BYTES = 64  # maximum mean number of bytes per line of a file of scores


def ter(hypotheses: list[str], references: Sequence[list[str]], tokenize: str | None = None) -> dict[str, Any]:
    """Return the fields of `OtherScore` for sacreBLEU's TER.

    The statistics of a sentence are its number of edits and the mean length of its references. `tokenize` is the tokenizer for
    BLEU. If it is a tokenizer for text without spaces, TER counts each Chinese character as a word.
    """
    from sacrebleu.metrics import TER as Metric

    unspaced = tokenize in _UNSPACED
    metric = Metric(normalized=unspaced, asian_support=unspaced)
    metric.num_refs = len(references)
    rows = metric._extract_corpus_statistics(hypotheses, list(references))
    return {
        "score": metric._aggregate_and_compute(rows).score,
        "metric": f"TER {metric.get_signature()}",
        "statistics": pack(rows),
        "smaller_is_better": True,
    }


def title(name: str) -> str:
    """Return the name of a metric in tables."""
    return name.upper() if name == TER else name


def given(name: str, path: Path, sentences: int, smaller_is_better: bool = False) -> dict[str, Any]:
    """Return the fields of `OtherScore` for a file with one score per sentence.

    The score of the test set is the mean of the sentence scores. Raise PositionError if the name is not allowed, or if the file
    does not contain one number per sentence.
    """
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise PositionError(
            f"{name!r}: not a name for segment scores. Expected letters, digits, . _ + and -, and not {', '.join(_RESERVED)}."
        )
    if path.is_file() and path.stat().st_size > _MOST_BYTES * (sentences + 1):
        raise PositionError(f"{path}: {path.stat().st_size:,} bytes for {sentences:,} sentences. Expected one number per line.")
    lines = read_text(path).removesuffix("\n").split("\n")
    if len(lines) != sentences:
        raise PositionError(f"{path}: {len(lines):,} lines for {sentences:,} sentences. Expected one number per line.")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not abs(value) <= _LARGEST:
            raise PositionError(f"{path}, line {number}: not a score. Expected a number between -{_LARGEST:,} and {_LARGEST:,}.")
        rows.append([value])
    return {
        "score": math.fsum(value for (value,) in rows) / sentences,
        "metric": f"{name}, mean over sentences",
        "statistics": pack(rows),
        "smaller_is_better": smaller_is_better,
    }


def pack(rows: list[list[float]]) -> str:
    """Return rows of numbers as text, for score.json."""
    return pack_json([*zip(*rows)])


def unpack(text: str) -> list[list[float]]:
    """Return the rows that `pack` stored in a text. For a damaged text, errors of many types can be raised."""
    rows = [list(map(float, row)) for row in zip(*unpack_json(text), strict=True)]
    if not rows or not all(abs(value) <= 2**31 for row in rows for value in row):
        raise ValueError("statistics that are not numbers")
    return rows

"""sacreBLEU's sentence statistics in score.json. Significance tests and scores by length use these statistics, not the text."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

METRICS = {"bleu": "BLEU", "chrf": "chrF"}

_NUMBERS = {"bleu": 10, "chrf": 18}  # number of counts per sentence
_LARGEST = 2**28  # maximum number of bytes of unpacked statistics. One million sentences need less


@dataclass(frozen=True)
class SentenceStatistics:
    """sacreBLEU's counts and the source length of every sentence of one test set.

    Raise ValueError if a field contains other values than counts, or if the fields have different numbers of sentences.
    """

    # per sentence: hypothesis length, reference length, 4 numbers of matching n-grams, 4 numbers of n-grams of the hypothesis
    bleu: list[list[int]]
    chrf: list[list[int]]  # per sentence and for every n: number of n-grams in the hypothesis, in the reference, and in both
    source_words: list[int] | None = None

    def __post_init__(self) -> None:
        if {len(self.bleu)} != {len(self.chrf), len(self.bleu if self.source_words is None else self.source_words)}:
            raise ValueError("statistics of different numbers of sentences")
        for name, length in _NUMBERS.items():
            if any(len(row) != length or not _counts(row) for row in getattr(self, name)):
                raise ValueError(f"the statistics of {name} are not counts")
        if not _counts(self.source_words or []):
            raise ValueError("the source lengths are not counts")

    def pack(self) -> str:
        """Return the statistics as text, for score.json."""
        return pack_json({name: rows if name == "source_words" else list(zip(*rows)) for name, rows in vars(self).items()})

    @classmethod
    def unpack(cls, text: str) -> SentenceStatistics:
        """Return the statistics from the text of `pack`. For a damaged text, errors of many types can be raised."""
        columns = unpack_json(text)
        rows = {name: [list(row) for row in zip(*columns[name])] for name in METRICS}
        return cls(**rows, source_words=columns["source_words"])


def pack_json(value: Any, separators: tuple[str, str] = (",", ":")) -> str:
    """Return a JSON value, such as columns of counts, as compressed text for score.json."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=separators).encode(), 9)).decode()


def unpack_json(text: str) -> Any:
    """Return the value that `pack_json` stored in a text. For a damaged text, errors of many types can be raised."""
    return json.loads(zlib.decompressobj().decompress(base64.b64decode(text), _LARGEST))


def _counts(numbers: list[Any]) -> bool:
    return set(map(type, numbers)) <= {int} and (not numbers or (min(numbers) >= 0 and max(numbers) < 2**31))


def count(
    hypotheses: list[str],
    references: list[str],
    source_words: list[int] | None = None,
    tokenize: str | None = None,
    more_references: Sequence[list[str]] = (),
) -> SentenceStatistics:
    """Return sacreBLEU's sentence statistics. `tokenize` is the tokenizer for BLEU. None: sacreBLEU's default."""
    metrics = (sacrebleu_metric(name, tokenize if name == "bleu" else None) for name in METRICS)
    counts = [metric._extract_corpus_statistics(hypotheses, [references, *more_references]) for metric in metrics]
    return SentenceStatistics(*counts, source_words=source_words)


@functools.cache
def sacrebleu_metric(name: str, tokenize: str | None = None) -> Any:
    """Return a metric of sacreBLEU, "bleu" or "chrf"."""
    from sacrebleu.metrics import BLEU, CHRF

    # force=True hides a warning that sacreBLEU already prints when it computes the score
    metric = BLEU(force=True, tokenize=tokenize) if name == "bleu" else CHRF()
    metric.num_refs = 1
    return metric


def corpus_score(name: str, rows: list[list[int]]) -> Any:
    """Return sacreBLEU's score object of the metric `name`, from the counts of these sentences."""
    return sacrebleu_metric(name)._aggregate_and_compute(rows)

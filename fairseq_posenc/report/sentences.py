"""What sacreBLEU counts in every sentence, kept in score.json: enough for its tests and for scores by length, and no text."""

from __future__ import annotations

import base64
import functools
import json
import logging
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from ..contract import PositionError

METRICS = {"bleu": "BLEU", "chrf": "chrF"}
TESTS = {"bs": "paired bootstrap resampling", "ar": "paired approximate randomization"}
SAMPLES = {"bs": 1000, "ar": 10000}  # sacreBLEU's own

#: number of words, the last without an upper limit
BUCKETS = ((1, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 59), (60, None))


@dataclass(frozen=True)
class Sentences:
    bleu: list[list[int]]  # a sentence: length of the hypothesis, of the reference, matching n-grams, n-grams
    chrf: list[list[int]]  # a sentence: for every n, n-grams of the hypothesis, of the reference, in both
    source_words: list[int] | None = None

    def __post_init__(self) -> None:
        if {len(self.bleu)} != {len(self.chrf), len(self.source_words or self.bleu)}:
            raise ValueError("statistics of different numbers of sentences")

    def pack(self) -> str:
        columns = {name: rows if name == "source_words" else list(zip(*rows)) for name, rows in asdict(self).items()}
        return base64.b64encode(zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)).decode()

    @classmethod
    def unpack(cls, text: str) -> Sentences:
        columns = json.loads(zlib.decompress(base64.b64decode(text)))
        rows = {name: [list(row) for row in zip(*columns[name])] for name in METRICS}
        return cls(**rows, source_words=columns["source_words"])


def count(hypotheses: list[str], references: list[str], source_words: list[int] | None = None) -> Sentences:
    counts = {name: _metric(name, stored=False)._extract_corpus_statistics(hypotheses, [references]) for name in METRICS}
    return Sentences(**counts, source_words=source_words)


@functools.cache
def _metric(name: str, stored: bool = True) -> Any:
    """sacreBLEU's metric, one that takes what it has counted before in the place of hypotheses."""
    from sacrebleu.metrics import BLEU, CHRF

    class Metric({"bleu": BLEU, "chrf": CHRF}[name]):  # type: ignore[misc]
        def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
            if not stored:
                return super()._extract_corpus_statistics(hypotheses, references)
            return [sentence[name] for sentence in hypotheses]

    metric = Metric(**({"force": True} if name == "bleu" else {}))  # its warnings come with the score
    metric.num_refs = 1
    return metric


def paired(baseline: Sentences, others: dict[str, Sentences], test: str, samples: int = 0) -> dict[str, dict[str, float]]:
    """The p-value of every other system and metric, from sacreBLEU's test of each against the baseline."""
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it says every step
    systems = {"": baseline, **others}
    length = len(baseline.bleu)
    if any(len(system.bleu) != length for system in systems.values()):
        raise PositionError("the statistics are of different numbers of sentences; score the runs again")
    named = [
        (name, [{"bleu": bleu, "chrf": chrf} for bleu, chrf in zip(system.bleu, system.chrf)]) for name, system in systems.items()
    ]
    _, results = PairedTest(named, {name: _metric(name) for name in METRICS}, None, test, samples)()
    by_metric = zip(METRICS, [column for heading, column in results.items() if heading != "System"])
    p_values = {metric: [result.p_value for result in column[1:]] for metric, column in by_metric}
    return {name: {metric: p_values[metric][i] for metric in METRICS} for i, name in enumerate(others)}


def bucket_names() -> list[str]:
    return [f"{first}-{last}" if last else f"{first}+" for first, last in BUCKETS]


def by_length(sentences: Sentences) -> list[tuple[int, float | None]]:
    """For every bucket the number of sentences and their BLEU; nothing where the source lengths are unknown."""
    found = []
    for first, last in BUCKETS if sentences.source_words else ():
        inside = [
            row
            for row, words in zip(sentences.bleu, sentences.source_words)
            if max(words, 1) >= first and (last is None or words <= last)
        ]
        found.append((len(inside), _metric("bleu")._aggregate_and_compute(inside).score if inside else None))
    return found

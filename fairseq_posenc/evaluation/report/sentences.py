"""Sentences of a test part: tests of the difference between two systems, and BLEU by the number of source words."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import numpy as np

from ...common.messages import shorten
from ...core import PositionError
from ..scoring.record import Record
from ..scoring.sentences import METRICS, SentenceStatistics, corpus_bleu
from . import statistics
from .options import RANDOMIZATION, SAMPLES
from .records import label

#: BLEU of fewer sentences is not shown
MIN_SENTENCES = 50

#: fewest and most words of a source, or None for no limit
Bucket = tuple[int, int | None]


def sentence_statistics(run: Record, part: str) -> SentenceStatistics | None:
    """Of the sentences of a part; None where the run was scored without them or lacks the part."""
    scores = run.parts.get(part)
    if scores is None or scores.statistics is None:
        return None
    try:
        found = SentenceStatistics.unpack(scores.statistics)
        if len(found.bleu) != scores.sentences:
            raise ValueError("statistics of another number of sentences")
        return found
    except Exception:  # a damaged text can fail in any of four steps
        name = f"{shorten(label(run))}, seed {run.seed}, part {shorten(part)}"
        raise PositionError(f"the sentence statistics of {name} are damaged; score the run again") from None


def random_seed() -> int | None:
    """The seed of the tests over sentences, from SACREBLEU_SEED; None for 'none'."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() == "none":
        return None
    if not (seed.isascii() and seed.isdigit() and len(seed) <= 18):
        raise PositionError(f"SACREBLEU_SEED={shorten(seed)!r} is no seed; set it to a number of at least 0 or to none")
    return int(seed)


def paired_test(
    baseline: SentenceStatistics, others: Mapping[str, SentenceStatistics], test: str = RANDOMIZATION, samples: int = 0
) -> dict[str, dict[str, float]]:
    """The two-sided p-value of every other system and metric, uncorrected."""
    if any(len(system.bleu) != len(baseline.bleu) for system in others.values()):
        raise PositionError("the statistics are of different numbers of sentences; score the runs again")
    seed = random_seed()
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    found: dict[str, dict[str, float]] = {name: {} for name in others}
    for metric in METRICS:
        counts = np.array(getattr(baseline, metric))
        for name, system in others.items():
            other = np.array(getattr(system, metric))
            found[name][metric] = statistics.sentence_test(counts, other, SCORES[metric], test, samples or SAMPLES[test], seed)
    return found


def bleu(sums: statistics.Array) -> statistics.Array:
    """BLEU [samples] of summed counts [samples, 10], by sacreBLEU's definition with exponential smoothing."""
    words, reference, correct, total = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty = np.where(words < reference, np.exp(1 - reference / words), 1.0)
        halved = 0.5 ** np.cumsum(correct == 0, 1)  # of every order without a match
        precision = 100 * np.where(correct > 0, correct, halved) / total
        score = penalty * np.exp(np.log(precision).mean(1))
    return np.where(correct.any(1) & (total > 0).all(1), score, 0.0)


def chrf(sums: statistics.Array) -> statistics.Array:
    """chrF2 [samples] of summed counts [samples, 18], by sacreBLEU's definition: means over the orders that occur in both."""
    hypothesis, reference, both = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    there = (hypothesis > 0) & (reference > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(there, both / hypothesis, 0.0).sum(1) / there.sum(1)
        recall = np.where(there, both / reference, 0.0).sum(1) / there.sum(1)
        score = 100 * 5 * precision * recall / (4 * precision + recall)
    return np.where(both.any(1), score, 0.0)


#: scores of many samples at once, which one call of sacreBLEU for each sample would take minutes for
SCORES = {"bleu": bleu, "chrf": chrf}


def buckets_up_to(longest: int) -> list[Bucket]:
    """Of ten words each; those of 60 and more are one unless sentences are longer than that one would contain."""
    tens = range(60, longest + 1, 10) if longest >= 70 else ()
    return [(1, 9), *((first, first + 9) for first in (10, 20, 30, 40, 50, *tens)), *([] if tens else [(60, None)])]


def bucket_name(bucket: Bucket) -> str:
    first, last = bucket
    return f"{first}-{last}" if last else f"{first}+"


def bleu_by_length(sentences: SentenceStatistics, buckets: list[Bucket]) -> list[tuple[int, float | None]]:
    """For every bucket the number of sentences and their BLEU; nothing where the source lengths are unknown."""
    found = []
    for first, last in buckets if sentences.source_words else ():
        inside = [
            row
            for row, words in zip(sentences.bleu, sentences.source_words)
            if max(words, 1) >= first and (last is None or words <= last)
        ]
        found.append((len(inside), corpus_bleu(inside) if inside else None))
    return found

"""Computations on the sentences of a test set: significance tests between two systems, and BLEU by source length."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np

from ...common.messages import shorten
from ...core import PositionError
from ..scoring import others
from ..scoring.record import Record
from ..scoring.sentences import METRICS, SentenceStatistics, corpus_score
from . import statistics
from .options import RANDOMIZATION, SAMPLES
from .records import label

#: BLEU of a bucket is shown only if the bucket has at least this number of sentences
MIN_SENTENCES = 50

#: minimum and maximum number of words of a source. None: no limit
Bucket = tuple[int, int | None]


def sentence_counts(run: Record, part: str) -> dict[str, statistics.Array]:
    """Return metric -> counts of every sentence [N, K], for the metrics with which the test set was scored."""
    counted = sentence_statistics(run, part)
    found = {} if counted is None else {metric: np.array(getattr(counted, metric)) for metric in METRICS}
    for name, other in run.parts[part].others.items() if part in run.parts else ():
        try:
            rows = np.array(others.unpack(other.statistics))
            if len(rows) != run.parts[part].sentences or rows.shape[1] != (2 if name == others.TER else 1):
                raise ValueError("statistics of another number of sentences")
        except Exception:  # unpacking damaged statistics can raise errors of many types
            raise PositionError(_damaged(run, part)) from None
        found[name] = rows if name == others.TER else np.concatenate([rows, np.ones_like(rows)], 1)
    return found


def sentence_statistics(run: Record, part: str) -> SentenceStatistics | None:
    """Return the sentence statistics of a test set, or None if the run has no such statistics or no such test set."""
    scores = run.parts.get(part)
    if scores is None or scores.statistics is None:
        return None
    try:
        found = SentenceStatistics.unpack(scores.statistics)
        if len(found.bleu) != scores.sentences:
            raise ValueError("wrong number of sentences in the statistics")
        return found
    except Exception:  # unpacking damaged statistics can raise errors of many types
        raise PositionError(_damaged(run, part)) from None


def _damaged(run: Record, part: str) -> str:
    name = f"{shorten(label(run))}, seed {run.seed}, test set {shorten(part)}"
    return f"{name}: the sentence statistics are damaged. Run posenc score again."


def random_seed() -> int | None:
    """Return the random seed of the tests over sentences, from the environment variable SACREBLEU_SEED. None: no fixed seed."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() == "none":
        return None
    if not (seed.isascii() and seed.isdigit() and len(seed) <= 18):
        raise PositionError(f"SACREBLEU_SEED={shorten(seed)!r}: not a seed. Expected a number of at least 0, or none.")
    return int(seed)


def sentence_test(
    metric: str, baseline: statistics.Array, other: statistics.Array, test: str = RANDOMIZATION, samples: int = SAMPLES
) -> float:
    """Return the uncorrected two-sided p-value of the difference between two systems, from the counts of `sentence_counts`."""
    if len(baseline) != len(other):
        raise PositionError("the runs have statistics of different numbers of sentences. Run posenc score again for all runs.")
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    score = SCORES.get(metric, mean)
    return statistics.sentence_test(baseline, other, score, test, samples, random_seed())


def bleu(sums: statistics.Array) -> statistics.Array:
    """Return BLEU [samples] from summed counts [samples, 10], as defined by sacreBLEU with exponential smoothing."""
    words, reference, correct, total = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty = np.where(words < reference, np.exp(1 - reference / words), 1.0)
        # values instead of 0 matches: 1/2 at the first n-gram order without a match, 1/4 at the second such order, and so on
        halved = 0.5 ** np.cumsum(correct == 0, 1)
        precision = 100 * np.where(correct > 0, correct, halved) / total
        score = penalty * np.exp(np.log(precision).mean(1))
    return np.where(correct.any(1) & (total > 0).all(1), score, 0.0)


def chrf(sums: statistics.Array) -> statistics.Array:
    """Return chrF2 [samples] from summed counts [samples, 18], as defined by sacreBLEU.

    Precision and recall are means over the n-gram orders for which hypothesis and reference both contain n-grams.
    """
    hypothesis, reference, both = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    there = (hypothesis > 0) & (reference > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(there, both / hypothesis, 0.0).sum(1) / there.sum(1)
        recall = np.where(there, both / reference, 0.0).sum(1) / there.sum(1)
        score = 100 * 5 * precision * recall / (4 * precision + recall)
    return np.where(both.any(1), score, 0.0)


def ter(sums: statistics.Array) -> statistics.Array:
    """Return TER [samples] from summed counts [samples, 2], as defined by sacreBLEU: edits per 100 words of the references."""
    edits, words = sums[:, 0], sums[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return 100 * np.where(words > 0, edits / words, edits > 0)


def mean(sums: statistics.Array) -> statistics.Array:
    """Return the mean [samples] of sentence scores.

    `sums` [samples, 2] contains the sum of the scores and the number of sentences.
    """
    return sums[:, 0] / sums[:, 1]


#: metric -> function that computes the scores of many samples at once. sacreBLEU's functions would take minutes
SCORES = {"bleu": bleu, "chrf": chrf, others.TER: ter}


def buckets_up_to(longest: int) -> list[Bucket]:
    """Return the buckets of source lengths for sentences of up to `longest` words: 1 to 9, 10 to 19, and so on.

    If `longest` is below 70, the last bucket contains all lengths of at least 60 words.
    """
    tens = range(60, longest + 1, 10) if longest >= 70 else ()
    return [(1, 9), *((first, first + 9) for first in (10, 20, 30, 40, 50, *tens)), *([] if tens else [(60, None)])]


def bucket_name(bucket: Bucket) -> str:
    first, last = bucket
    return f"{first}-{last}" if last else f"{first}+"


def bleu_by_length(sentences: SentenceStatistics, buckets: list[Bucket]) -> list[tuple[int, float | None]]:
    """Return (number of sentences, BLEU) for every bucket, or an empty list if the source lengths are unknown."""
    found = []
    for bucket in buckets if sentences.source_words else ():
        inside = [sentences.bleu[index] for index in in_bucket(sentences.source_words, bucket)]
        found.append((len(inside), corpus_score("bleu", inside).score if inside else None))
    return found


def in_bucket(source_words: Sequence[int] | None, bucket: Bucket) -> list[int]:
    """Return the indices of the sentences in a bucket. The first bucket also contains empty sources."""
    first, last = bucket
    return [n for n, words in enumerate(source_words or ()) if max(words, 1) >= first and (last is None or words <= last)]

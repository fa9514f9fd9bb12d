"""sacreBLEU's tests of the difference between two systems, from the statistics of their sentences."""

from __future__ import annotations

import logging
import os

from ...core import PositionError
from ..scoring.sentences import METRICS, SentenceStatistics, stored_metric

TESTS = {"bs": "paired bootstrap resampling", "ar": "paired approximate randomization"}
SAMPLES = {"bs": 1000, "ar": 10000}  # sacreBLEU's own


def random_seed() -> str:
    """The seed of the tests, from SACREBLEU_SEED, as sacreBLEU reads it."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() != "none" and not (seed.isascii() and seed.isdigit()):
        raise PositionError(f"SACREBLEU_SEED={seed!r} is no seed; set it to a number of at least 0 or to none")
    return seed


def paired_test(
    baseline: SentenceStatistics, others: dict[str, SentenceStatistics], test: str, samples: int = 0
) -> dict[str, dict[str, float]]:
    """The p-value of every other system and metric, from sacreBLEU's test of each against the baseline."""
    from sacrebleu.significance import PairedTest

    random_seed()
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it logs every step
    systems = {"": baseline, **others}
    if any(len(system.bleu) != len(baseline.bleu) for system in systems.values()):
        raise PositionError("the statistics are of different numbers of sentences; score the runs again")
    named = [
        (name, [{"bleu": bleu, "chrf": chrf} for bleu, chrf in zip(system.bleu, system.chrf)]) for name, system in systems.items()
    ]
    _, results = PairedTest(named, {name: stored_metric(name) for name in METRICS}, None, test, samples)()
    by_metric = zip(METRICS, [column for heading, column in results.items() if heading != "System"])
    p_values = {metric: [result.p_value for result in column[1:]] for metric, column in by_metric}
    return {name: {metric: p_values[metric][i] for metric in METRICS} for i, name in enumerate(others)}

"""Options of the comparison in a report. This module imports no large libraries, because the command line imports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

VIEWS = ("scores", "lengths")
ORDERS = ("score", "given")
SEED_TESTS = ("welch", "paired")

BOOTSTRAP, RANDOMIZATION = "bs", "ar"
#: sacreBLEU's name of a test over sentences -> title
TESTS = {RANDOMIZATION: "paired approximate randomization", BOOTSTRAP: "paired bootstrap resampling"}
#: default number of samples of a test. sacreBLEU's default for bs is 1,000. The smallest p-value is then 1/1,001, so in tables of
#: 51 rows no corrected p-value is below .05
SAMPLES = 10000


@dataclass(frozen=True)
class Options:
    """Options of the comparison in a report (see `posenc report --help`)."""

    expected: Sequence[str] = ()  # specs that have a row even if they have no run
    # None: the row of sinusoidal if there is exactly one with runs. Otherwise the first row with a run, in the order before
    # sorting by score
    baseline: str | None = None
    order: str = "score"
    seed_test: str = "welch"
    sentences: bool = True  # whether to compute BLEU by source length and the slow tests over sentences
    test: str = RANDOMIZATION
    samples: int = SAMPLES  # number of samples of the test over sentences

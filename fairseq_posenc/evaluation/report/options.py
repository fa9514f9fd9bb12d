"""Options of the comparison in a report. This module does not import the libraries of the computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

VIEWS = ("scores", "lengths")
ORDERS = ("score", "given")
SEED_TESTS = ("welch", "paired")

BOOTSTRAP, RANDOMIZATION = "bs", "ar"
#: tests over sentences by sacreBLEU's names, and sacreBLEU's default numbers of samples
TESTS = {RANDOMIZATION: "paired approximate randomization", BOOTSTRAP: "paired bootstrap resampling"}
SAMPLES = {RANDOMIZATION: 10000, BOOTSTRAP: 1000}


@dataclass(frozen=True)
class Options:
    """Options of the comparison in a report."""

    expected: Sequence[str] = ()  # specs that have a row, also without a run
    baseline: str | None = None  # None: sinusoidal, or else the first row with a run
    order: str = "score"
    seed_test: str = "welch"
    sentences: bool = True  # also compute scores by source length, and the tests over sentences, which take long
    test: str = RANDOMIZATION
    samples: int = 0  # 0: sacreBLEU's default

    @property
    def drawn(self) -> int:
        """Return the number of samples."""
        return self.samples or SAMPLES[self.test]

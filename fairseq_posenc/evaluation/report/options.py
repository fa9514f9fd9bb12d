"""How a report compares: the choices of the command line, without the libraries that the computation needs."""

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
    """How a report compares."""

    expected: Sequence[str] = ()  # specs that get a row, run or not
    baseline: str | None = None  # None: sinusoidal, else the first row with a run
    order: str = "score"
    seed_test: str = "welch"
    sentences: bool = True  # also the tests over sentences, which take a while, and scores by source length
    test: str = RANDOMIZATION
    samples: int = 0  # 0: sacreBLEU's default

    @property
    def drawn(self) -> int:
        """Return the number of samples."""
        return self.samples or SAMPLES[self.test]

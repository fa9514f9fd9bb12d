"""How much is chance: how far trainings of one method with several seeds are apart, and which differences are no larger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..scoring.record import FILE, Record, read
from ..scoring.sentences import METRICS
from .records import identity
from .rows import Row, group

#: in a checkout, where the runs of recipes/studies/chance are kept
COMMITTED = Path(__file__).parents[3] / "results" / "chance"

#: beside the data and the updates, what makes a task: the size of the model and how it is trained
_TASK = (
    "encoder_layers", "decoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "dropout", "lr",
    "lr_scheduler", "warmup_updates", "max_tokens", "batch_size", "update_freq", "max_epoch", "max_update", "patience", "bf16",
    "fp16",
)  # fmt: skip

#: two seeds that are alike by accident would call every difference large
_FEWEST_DEGREES = 2


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds, and how well it is known."""

    deviation: float
    degrees: int  # of freedom


@dataclass(frozen=True)
class Chance:
    """The spread over seeds of each score, pooled over the methods that have several."""

    methods: list[str]
    trainings: int
    of_this_table: bool
    of_the_study: bool
    spreads: dict[tuple[str, str], Spread]  # (part, metric)

    def margin(self, part: str, metric: str, seeds: int = 1) -> float | None:
        """What 19 in 20 differences between means of so many trainings are below, by Student's t; None if it is not known."""
        from scipy.special import stdtrit  # takes a while to import

        spread = self.spreads.get((part, metric))
        if spread is None or spread.degrees < _FEWEST_DEGREES:
            return None
        return float(stdtrit(spread.degrees, 0.975)) * spread.deviation * math.sqrt(2 / seeds)


def known_chance(rows: Sequence[Row], parts: Sequence[str], folder: Path) -> Chance | None:
    """From the rows themselves, and the runs below a folder that have the same task and another method or seed."""
    own = [run for row in rows for run in row.runs]
    task, taken = _task(own[0]), {_training(run) for run in own}
    found = [record for path in sorted(folder.rglob(FILE)) if _task(record := read(path)) == task]
    several = [row for row in group([*own, *(run for run in found if _training(run) not in taken)]) if len(row.runs) > 1]
    spreads = {(part, metric): spread for part in parts for metric in METRICS if (spread := _pooled(several, part, metric))}
    if not spreads:
        return None
    used = {_training(run) for row in several for run in row.runs}
    return Chance([row.name for row in several], len(used), bool(used & taken), bool(used - taken), spreads)


def _task(record: Record) -> dict[str, Any]:
    return {"data": record.data, **{name: record.settings.get(name) for name in _TASK}}


def _training(record: Record) -> tuple[Any, int]:
    return identity(record), record.seed


def _pooled(rows: Sequence[Row], part: str, metric: str) -> Spread | None:
    """Over the rows, each around its own mean; None where no row has two numbers."""
    several = [values for row in rows if (values := row.score(part, metric)) is not None and values.sd is not None]
    degrees = sum(values.n - 1 for values in several)
    return Spread(math.sqrt(sum((values.n - 1) * values.sd**2 for values in several) / degrees), degrees) if degrees else None

"""How much is chance: how far trainings of one method with several seeds are apart, and which differences are no larger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..scoring.record import FILE, Record, read
from ..scoring.sentences import METRICS
from .rows import Row, make_rows

#: in a checkout, where the runs of recipes/studies/chance are kept
COMMITTED = Path(__file__).parents[2] / "results" / "chance"

#: beside the data and the updates, what makes a task: the size of the model and how it is trained
_TASK = (
    "encoder_layers", "decoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "dropout", "lr",
    "lr_scheduler", "warmup_updates", "max_tokens", "batch_size", "update_freq", "max_epoch", "max_update", "patience", "bf16",
    "fp16",
)  # fmt: skip


@dataclass(frozen=True)
class Chance:
    """The standard deviation over seeds of each score, pooled over the methods that have several."""

    methods: list[str]
    trainings: int
    of_this_table: bool
    deviations: dict[tuple[str, str], float]  # (part, metric)

    def margin(self, part: str, metric: str, seeds: int = 1) -> float | None:
        """Twice the deviation of the difference of two means of so many trainings: 19 in 20 differences of chance are smaller."""
        deviation = self.deviations.get((part, metric))
        return None if deviation is None else 2 * deviation * math.sqrt(2 / seeds)


def known_chance(rows: Sequence[Row], parts: Sequence[str], folder: Path) -> Chance | None:
    """From the rows themselves where some have several seeds, else from the runs below a folder that have the same task."""
    if any(len(row.runs) > 1 for row in rows):
        return _pooled(rows, parts, of_this_table=True)
    task = _task(next(row.runs[0] for row in rows if row.runs))
    same = [record for path in sorted(folder.rglob(FILE)) if _task(record := read(path)) == task]
    return _pooled(make_rows(same, []), parts, of_this_table=False)


def _task(record: Record) -> dict[str, Any]:
    return {"data": record.data, **{name: record.settings.get(name) for name in _TASK}}


def _pooled(rows: Sequence[Row], parts: Sequence[str], of_this_table: bool) -> Chance | None:
    deviations = {}
    for part in parts:
        for metric in METRICS:
            several = [values for row in rows if (values := row.score(part, metric)) is not None and values.n > 1]
            if several:
                squares = sum((values.n - 1) * values.sd**2 for values in several)
                deviations[part, metric] = math.sqrt(squares / sum(values.n - 1 for values in several))
    if not deviations:
        return None
    named = [row for row in rows if len(row.runs) > 1]
    return Chance([row.name for row in named], sum(len(row.runs) for row in named), of_this_table, deviations)

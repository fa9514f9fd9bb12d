"""The rows of a table: the runs of one method over its seeds, and their numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...common.messages import join, shorten
from ...core import PositionError
from ...registry.spec import parse, sites_of
from ..scoring.record import Record
from .records import describe, identity, label


@dataclass(frozen=True)
class Values:
    """One number of one method by seed."""

    by_seed: dict[int, float]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.by_seed.values())

    @property
    def sd(self) -> float | None:
        return statistics.stdev(self.by_seed.values()) if self.n > 1 else None


@dataclass(frozen=True)
class Row:
    """All runs of one method."""

    name: str
    runs: list[Record]  # by seed; none for a method that was not run
    reconstruction: bool = False  # a method in it is one

    @property
    def title(self) -> str:
        """The name, with the marks of a reconstruction and of output lengths that were asked for."""
        return self.name + " †" * self.reconstruction + " ‡" * bool(self.asked)

    @property
    def asked(self) -> list[str]:
        """Where the output lengths come from that decoding asked for."""
        return sorted({part.asked.source for run in self.runs for part in run.parts.values() if part.asked})

    def values(self, get: Callable[[Record], float | None]) -> Values | None:
        found = {run.seed: value for run in self.runs if (value := get(run)) is not None}
        return Values(found) if found else None

    def score(self, part: str, metric: str) -> Values | None:
        return self.values(lambda run: getattr(run.parts[part], metric) if part in run.parts else None)

    @property
    def peak_memory(self) -> float | None:
        """The largest of the seeds, in GiB."""
        values = self.values(lambda run: run.peak_memory.gib if run.peak_memory else None)
        return max(values.by_seed.values()) if values else None

    @property
    def final_loss(self) -> Values | None:
        """The validation loss of the model that was decoded, or the last one before it."""
        return self.values(_final_loss)


def _final_loss(run: Record) -> float | None:
    reached = [loss for updates, loss in run.learning_curve or () if updates <= run.updates]
    return reached[-1] if reached else None


def make_rows(records: list[Record], expected: list[str]) -> list[Row]:
    """Expected specs first and in their order, run or not; all others by name.

    Runs with the same options are one row however their specs were written. Raises PositionError for an expected spec
    that is wrong.
    """
    groups = _groups(records)
    names = {key: _name(runs, expected) for key, runs in groups.items()}
    same = [name for name in names.values() if list(names.values()).count(name) > 1]
    if same:
        raise PositionError(f"runs of {shorten(same[0])} differ in their options (signature); keep those of one in the folder")
    rows: dict[Any, Row] = {}
    for spec in expected:
        key = _find(spec, names)
        if key is None:
            specs = sites_of(spec)
            rows.setdefault(spec_key(spec), Row(describe(specs), [], _reconstructed(specs)))
        else:
            rows.setdefault(key, _row(names[key], groups[key]))
    for key in sorted(groups, key=names.__getitem__):
        rows.setdefault(key, _row(names[key], groups[key]))
    return list(rows.values())


def group(records: list[Record]) -> list[Row]:
    """One row for each method, by name."""
    return sorted((_row(_name(runs, []), runs) for runs in _groups(records).values()), key=lambda row: row.name)


def _row(name: str, runs: list[Record]) -> Row:
    return Row(name, runs, _reconstructed(runs[0].method))


def _groups(records: list[Record]) -> dict[Any, list[Record]]:
    groups: dict[Any, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(identity(record), []).append(record)
    return groups


def _name(runs: list[Record], expected: list[str]) -> str:
    """The label that was asked for, else the shortest: t5 rather than t5:buckets=32."""
    labels = sorted({label(run) for run in runs}, key=lambda text: (len(text), text))
    return next((text for text in expected if text in labels), labels[0])


def _find(spec: str, names: dict[Any, str]) -> Any:
    """The row that a spec means: the one with this name, else the one with the same options."""
    for key, name in names.items():
        if name == spec:
            return key
    wanted = spec_key(spec)
    return wanted if wanted in names else None


def spec_key(spec: str) -> tuple[Any, ...]:
    """The identity of runs that have this spec in both stacks, or those of a row of several; PositionError where it is wrong."""
    return tuple(sorted((site, parse(found).signature) for site, found in sites_of(spec).items())), (), None


def find_row(rows: list[Row], spec: str) -> Row:
    """The row of a baseline; raises PositionError with the rows that there are."""
    names = [row.name for row in rows if row.runs]
    keys = {identity(row.runs[0]): row.name for row in rows if row.runs}
    try:
        found = spec if spec in names else keys.get(_find(spec, keys))
    except PositionError:  # a wrong spec is no row
        found = None
    if found is None:
        raise PositionError(f"there is no run of the baseline {shorten(spec)}; the runs are of {join(names, 8)}")
    return next(row for row in rows if row.name == found)


def _reconstructed(specs: Mapping[str, str]) -> bool:
    """Whether the card of one of the methods calls it a reconstruction."""
    from ... import registry  # imports torch

    methods = {part.partition(":")[0].strip() for spec in specs.values() for part in spec.split("+")}
    return any(registry.card(method).evidence == "reconstruction" for method in methods & set(registry.names()))

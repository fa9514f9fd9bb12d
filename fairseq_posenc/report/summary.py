"""The numbers of a report: every method over its seeds, its differences to a baseline, its scores by source length."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Callable

from ..contract import PositionError
from .records import Published, Record, label
from .sentences import BUCKETS, METRICS, Sentences, by_length, paired

#: BLEU of fewer sentences is not shown
FEWEST = 50


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
    name: str
    runs: list[Record]  # by seed; none for a method that was not run

    def values(self, get: Callable[[Record], float | None]) -> Values | None:
        found = {run["seed"]: value for run in self.runs if (value := get(run)) is not None}
        return Values(found) if found else None

    def score(self, part: str, metric: str) -> Values | None:
        return self.values(lambda run: run["parts"].get(part, {}).get(metric))


@dataclass(frozen=True)
class Difference:
    values: Values  # over the seeds that both have
    p: dict[int, float]  # by seed, where the statistics of the sentences are there


@dataclass(frozen=True)
class Lengths:
    """BLEU of a part by the number of source words."""

    sentences: list[int]  # in every bucket
    rows: dict[str, list[Values | None]]  # None where there are too few sentences

    @property
    def shown(self) -> list[int]:
        """The buckets that reach from the first to the last with a sentence."""
        used = [i for i, number in enumerate(self.sentences) if number]
        return list(range(used[0], used[-1] + 1))


@dataclass(frozen=True)
class Summary:
    rows: list[Row]
    parts: list[str]
    published: Published | None = None
    baseline: str | None = None  # None: no differences wanted
    test: str = "bs"
    samples: int = 0
    differences: dict[tuple[str, str, str], Difference] = field(default_factory=dict)  # (row, part, metric)
    lengths: dict[str, Lengths] = field(default_factory=dict)  # by part

    @property
    def runs(self) -> list[Record]:
        return [run for row in self.rows for run in row.runs]

    @property
    def seeds(self) -> int:
        """Of the method with most of them."""
        return max(len(row.runs) for row in self.rows)

    @property
    def reference(self) -> Row | None:
        """The row without any position, from which added parameters count."""
        return next((row for row in self.rows if row.name == "none" and row.runs), None)


def rows(records: list[Record], expected: list[str]) -> list[Row]:
    """Expected methods first and in their order, all others by name."""
    by_label: dict[str, list[Record]] = {name: [] for name in expected}
    for record in sorted(records, key=lambda record: (label(record), record["seed"])):
        by_label.setdefault(label(record), []).append(record)
    return [Row(name, runs) for name, runs in by_label.items()]


def parts(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(part for record in records for part in record["parts"]))


def choose_baseline(rows: list[Row], wanted: str | None) -> str:
    names = [row.name for row in rows if row.runs]
    if wanted is None:
        return "sinusoidal" if "sinusoidal" in names else names[0]
    if wanted not in names:
        raise PositionError(f"there is no run of the baseline {wanted}; the runs are of {', '.join(names)}")
    return wanted


def require_part(published: Published, parts: list[str]) -> None:
    if published.part not in parts:
        raise PositionError(f"the published figures are of part {published.part}; the runs have {', '.join(parts)}")


def statistics_of(run: Record, part: str) -> Sentences | None:
    text = run["parts"].get(part, {}).get("statistics")
    if text is None:
        return None
    try:
        return Sentences.unpack(text)
    except Exception:  # a damaged text can fail in any of four steps
        name = f"{label(run)}, seed {run['seed']}"
        raise PositionError(f"the sentence statistics of {name}, part {part} are damaged; score the run again") from None


def differences(
    rows: list[Row], parts: list[str], baseline: str, test: str, samples: int
) -> dict[tuple[str, str, str], Difference]:
    """Every row against the baseline, seed by seed."""
    found = {}
    for part in parts:
        tested = _tests(rows, part, baseline, test, samples)
        for metric in METRICS:
            base = next(row for row in rows if row.name == baseline).score(part, metric)
            for row in rows:
                ours = row.score(part, metric)
                seeds = ours.by_seed.keys() & base.by_seed.keys() if ours and base and row.name != baseline else ()
                if seeds:
                    values = Values({seed: ours.by_seed[seed] - base.by_seed[seed] for seed in sorted(seeds)})
                    p = {seed: tested[seed, row.name][metric] for seed in sorted(seeds) if (seed, row.name) in tested}
                    found[row.name, part, metric] = Difference(values, p)
    return found


def _tests(rows: list[Row], part: str, baseline: str, test: str, samples: int) -> dict[tuple[int, str], dict[str, float]]:
    by_seed: dict[int, dict[str, Sentences]] = {}
    for row in rows:
        for run in row.runs:
            counted = statistics_of(run, part)
            if counted is not None:
                by_seed.setdefault(run["seed"], {})[row.name] = counted
    found = {}
    for seed, systems in by_seed.items():
        base = systems.pop(baseline, None)
        if base is not None and systems:
            found.update({(seed, name): p for name, p in paired(base, systems, test, samples).items()})
    return found


def lengths(rows: list[Row], part: str) -> Lengths | None:
    """None where no run keeps the lengths of its sources."""
    found: dict[str, dict[int, list[tuple[int, float | None]]]] = {}
    for row in rows:
        for run in row.runs:
            counted = statistics_of(run, part)
            if counted is not None and counted.source_words:
                found.setdefault(row.name, {})[run["seed"]] = by_length(counted)
    if not found:
        return None
    numbers = [number for number, _ in next(iter(next(iter(found.values())).values()))]
    scores = {
        row.name: [
            Values({seed: buckets[i][1] for seed, buckets in found[row.name].items()})
            if row.name in found and numbers[i] >= FEWEST
            else None
            for i in range(len(BUCKETS))
        ]
        for row in rows
    }
    return Lengths(numbers, scores)


def summarise(
    records: list[Record],
    expected: list[str],
    published: Published | None = None,
    baseline: str | None = None,
    compare: bool = True,
    test: str = "bs",
    samples: int = 0,
) -> Summary:
    """Without `compare`, the scores alone: the tests take a while."""
    table, names = rows(records, expected), parts(records)
    if published:
        require_part(published, names)
    if not compare:
        return Summary(table, names, published)
    chosen = choose_baseline(table, baseline)
    by_part = {part: found for part in names if (found := lengths(table, part))}
    return Summary(table, names, published, chosen, test, samples, differences(table, names, chosen, test, samples), by_part)

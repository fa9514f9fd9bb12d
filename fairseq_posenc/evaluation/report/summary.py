"""The numbers of a report: every method over its seeds, its differences to a baseline, its scores by source length."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...common.messages import join, shorten
from ...core import PositionError
from ..scoring.record import Record
from ..scoring.sentences import METRICS, SentenceStatistics
from .chance import COMMITTED, Chance, known_chance
from .published import Published
from .records import label
from .rows import Row, Values, find_row, make_rows
from .significance import paired_test
from .source_length import bleu_by_length, bucket_name, buckets_up_to

#: BLEU of fewer sentences is not shown
MIN_SENTENCES = 50


@dataclass(frozen=True)
class Difference:
    """One score of a row less that of the baseline."""

    values: Values  # over the seeds that both have
    p: dict[int, float]  # by seed, where the statistics of the sentences are there


@dataclass(frozen=True)
class Lengths:
    """BLEU of a part by the number of source words."""

    names: list[str]  # of the buckets
    sentences: list[int]  # in every bucket
    rows: dict[str, list[Values | None]]  # None where there are too few sentences

    @property
    def shown(self) -> list[int]:
        """The buckets that reach from the first to the last with a sentence."""
        used = [i for i, number in enumerate(self.sentences) if number]
        return list(range(used[0], used[-1] + 1))


@dataclass(frozen=True)
class Summary:
    """All that the tables, plots and notes of a report are made from."""

    rows: list[Row]
    parts: list[str]
    published: Published | None = None
    baseline: str | None = None  # None: no differences wanted
    test: str = "bs"
    samples: int = 0
    differences: dict[tuple[str, str, str], Difference] = field(default_factory=dict)  # (row, part, metric)
    lengths: dict[str, Lengths] = field(default_factory=dict)  # by part
    chance: Chance | None = None  # None: not known

    def is_chance(self, row: str, part: str, metric: str) -> bool | None:
        """Whether a difference is one that trainings of one method have as well; None where that is not known."""
        difference = self.differences.get((row, part, metric))
        margin = self.chance.margin(part, metric, difference.values.n) if self.chance and difference else None
        return None if margin is None else abs(difference.values.mean) < margin

    @property
    def runs(self) -> list[Record]:
        return [run for row in self.rows for run in row.runs]

    @property
    def seeds(self) -> int:
        """Of the method with most of them."""
        return max(len(row.runs) for row in self.rows)

    def added_parameters(self, row: Row) -> int | None:
        """Over those of the row without any position."""
        plain = next((row for row in self.rows if row.name == "none" and row.runs), None)
        return row.runs[0].parameters - plain.runs[0].parameters if plain and row.runs else None


def summarise(
    records: list[Record],
    expected: list[str],
    published: Published | None = None,
    baseline: str | None = None,
    compare: bool = True,
    test: str = "bs",
    samples: int = 0,
    chance: Path = COMMITTED,
) -> Summary:
    """Without `compare`, the scores alone: the tests take a while. `chance` is the folder of runs with several seeds."""
    rows = make_rows(records, expected)
    parts = list(dict.fromkeys(part for record in records for part in record.parts))
    if published and published.part not in parts:
        raise PositionError(f"the published figures are of part {shorten(published.part)}; the runs have {join(parts, 8)}")
    known = known_chance(rows, parts, chance)
    if not compare:
        return Summary(rows, parts, published, chance=known)
    chosen = _baseline(rows, baseline)
    lengths = {part: found for part in parts if (found := _lengths(rows, part))}
    differences = _differences(rows, parts, chosen, test, samples)
    return Summary(rows, parts, published, chosen.name, test, samples, differences, lengths, known)


def _baseline(rows: list[Row], wanted: str | None) -> Row:
    if wanted is not None:
        return find_row(rows, wanted)
    run = [row for row in rows if row.runs]
    return next((row for row in run if row.name == "sinusoidal"), run[0])


def _statistics(run: Record, part: str) -> SentenceStatistics | None:
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


def _differences(
    rows: list[Row], parts: list[str], baseline: Row, test: str, samples: int
) -> dict[tuple[str, str, str], Difference]:
    """Every row against the baseline, seed by seed."""
    found = {}
    for part in parts:
        tested = _tests(rows, part, baseline, test, samples)
        for metric in METRICS:
            base = baseline.score(part, metric)
            for row in rows:
                ours = row.score(part, metric)
                seeds = ours.by_seed.keys() & base.by_seed.keys() if ours and base and row is not baseline else ()
                if seeds:
                    values = Values({seed: ours.by_seed[seed] - base.by_seed[seed] for seed in sorted(seeds)})
                    p = {seed: tested[seed, row.name][metric] for seed in sorted(seeds) if (seed, row.name) in tested}
                    found[row.name, part, metric] = Difference(values, p)
    return found


def _tests(rows: list[Row], part: str, baseline: Row, test: str, samples: int) -> dict[tuple[int, str], dict[str, float]]:
    """The p-values by seed and row, where a row and the baseline have statistics of the same seed."""
    by_seed: dict[int, dict[str, SentenceStatistics]] = {}
    for row in rows:
        for run in row.runs:
            counted = _statistics(run, part)
            if counted is not None:
                by_seed.setdefault(run.seed, {})[row.name] = counted
    found = {}
    for seed, systems in by_seed.items():
        base = systems.pop(baseline.name, None)
        if base is not None and systems:
            found.update({(seed, name): p for name, p in paired_test(base, systems, test, samples).items()})
    return found


def _lengths(rows: list[Row], part: str) -> Lengths | None:
    """None where no run keeps the lengths of its sources."""
    counted = [(row.name, run.seed, sentences) for row in rows for run in row.runs if (sentences := _statistics(run, part))]
    counted = [(name, seed, sentences) for name, seed, sentences in counted if sentences.source_words]
    if not counted:
        return None
    buckets = buckets_up_to(max(max(sentences.source_words) for _, _, sentences in counted))
    found: dict[str, dict[int, list[tuple[int, float | None]]]] = {}
    for name, seed, sentences in counted:
        found.setdefault(name, {})[seed] = bleu_by_length(sentences, buckets)
    numbers = [number for number, _ in next(iter(next(iter(found.values())).values()))]

    def values(row: Row, i: int) -> Values | None:
        by_seed = {seed: bleu[i][1] for seed, bleu in found.get(row.name, {}).items() if bleu[i][1] is not None}
        return Values(by_seed) if by_seed and numbers[i] >= MIN_SENTENCES else None

    shown = {row.name: [values(row, i) for i in range(len(buckets))] for row in rows}
    return Lengths([bucket_name(bucket) for bucket in buckets], numbers, shown)

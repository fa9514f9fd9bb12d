"""Compute the rows and the numbers of a report: scores, tested differences to a baseline, and BLEU by source length."""

from __future__ import annotations

import statistics as means
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...common.messages import join, shorten
from ...core import PositionError
from ...registry.spec import parse, sites_of
from ..scoring import others
from ..scoring.record import PartScores, Record
from ..scoring.sentences import METRICS
from . import statistics
from .options import Options
from .records import (
    Published,
    SeedVariance,
    conditions,
    describe,
    identity,
    label,
    read_from_references,
    same_task,
    unfinished_runs,
)
from .sentences import (
    MIN_SENTENCES,
    bleu_by_length,
    bucket_name,
    buckets_up_to,
    sentence_counts,
    sentence_statistics,
    sentence_test,
)

BASELINE = "sinusoidal"  # method of the baseline, by default


@dataclass(frozen=True)
class Values:
    """The values of one quantity, such as BLEU, for one method. Each seed has one value."""

    by_seed: dict[int, float]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return means.fmean(self.by_seed.values())

    @property
    def sd(self) -> float | None:
        return means.stdev(self.by_seed.values()) if self.n > 1 else None


@dataclass(frozen=True)
class Row:
    """All runs of one method."""

    name: str
    runs: list[Record]  # in the order of seeds. Empty if the method has no run
    reconstruction: bool = False  # whether a method in this row has the evidence `reconstruction`
    unfinished: list[Record] = field(default_factory=list)  # runs that did not end. They are not in `runs`

    @property
    def title(self) -> str:
        """Return the name of the row, with † for a reconstruction and ‡ for requested output lengths."""
        return self.name + " †" * self.reconstruction + " ‡" * bool(self.asked)

    @property
    def asked(self) -> list[str]:
        """Return where the requested output lengths come from, such as "reference" or "predictor".

        The list is empty if no lengths were requested.
        """
        return sorted({part.asked.source for run in self.runs for part in run.parts.values() if part.asked})

    def read_from_references(self, part: str) -> set[str]:
        """Return what the runs read from the references of a test set (see `records.read_from_references`)."""
        return set().union(*(read_from_references(run, part) for run in self.runs))

    def values(self, get: Callable[[Record], float | None]) -> Values | None:
        found = {run.seed: value for run in self.runs if (value := get(run)) is not None}
        return Values(found) if found else None

    def score(self, part: str, metric: str) -> Values | None:
        return self.values(lambda run: _score_of(run.parts.get(part), metric))

    @property
    def peak_memory(self) -> float | None:
        """Return the maximum peak memory over seeds, in GiB."""
        values = self.values(lambda run: run.peak_memory.gib if run.peak_memory else None)
        return max(values.by_seed.values()) if values else None

    @property
    def final_loss(self) -> Values | None:
        """Return the last validation loss of each seed.

        Validations after the last update of the scored checkpoint are not used. A seed whose last loss is NaN or infinite has no
        value.
        """
        return self.values(_final_loss)

    @property
    def diverged_at(self) -> int | None:
        """Return the number of updates at which a seed first has a validation loss that is NaN or infinite, or None."""
        return min((at for run in self.runs if (at := run.diverged_at) is not None), default=None)


def _score_of(scores: PartScores | None, metric: str) -> float | None:
    """Return BLEU, chrF or another score of a test set, or None if the test set was not scored with this metric."""
    if scores is None:
        return None
    if metric in METRICS:
        return getattr(scores, metric)
    return scores.others[metric].score if metric in scores.others else None


def _final_loss(run: Record) -> float | None:
    last = max(run.updates, int(float(f"{run.updates:g}")))  # fairseq's log contains 1234567 as 1.23457e+06
    reached = [loss for updates, loss in run.learning_curve or () if updates <= last]
    return reached[-1] if reached else None


@dataclass(frozen=True)
class Difference:
    """The difference between the mean score of a row and the mean score of the baseline."""

    mean: float
    seeds: tuple[int, int]  # number of seeds of the row, number of seeds of the baseline
    low: float | None = None  # lower limit of the 95 % interval. `low`, `high`, `p` and `holm` are None if unknown
    high: float | None = None
    p: float | None = None  # uncorrected p-value
    holm: float | None = None  # p-value after Holm's correction for the number of rows
    test: str = ""  # name of the test, or "" if p is unknown

    @property
    def known(self) -> bool:
        return self.holm is not None

    @property
    def differs(self) -> bool:
        return self.holm is not None and self.holm <= statistics.ALPHA


@dataclass(frozen=True)
class Score:
    """One score of a row, such as BLEU on one test set."""

    values: Values
    low: float | None = None  # lower limit of the 95 % interval of the mean. None: unknown
    high: float | None = None
    #: None in the row of the baseline, if the baseline has no score, and if the row has other inputs than the baseline
    difference: Difference | None = None
    rank: str = ""  # BEST, TIED, UNTESTED or ""


BEST, TIED, UNTESTED = "best", "not distinguishable from the best", "not compared with the best"


@dataclass(frozen=True)
class Spread:
    """The pooled standard deviation over seeds, which is used for rows with few seeds."""

    deviation: float  # in points or in logits, see `scale`
    degrees: int  # degrees of freedom
    scale: str
    rows: list[str]  # names of the rows of this table that were pooled
    others: list[str]  # names of the rows from --seed-variance that were pooled
    added: int  # number of pooled scores from --seed-variance, including scores of methods that are in this table
    runs: int  # number of runs that were pooled
    equal: float | None  # p-value of Bartlett's test that the pooled rows have the same variance


@dataclass(frozen=True)
class Column:
    """The scores of all rows for one metric on one test set."""

    name: str  # title of the metric
    scores: dict[str, Score]  # name of the row -> score
    spread: Spread | None = None  # None: the seed variance is unknown
    smaller_is_better: bool = False


@dataclass(frozen=True)
class Lengths:
    """BLEU of a test set by the number of source words."""

    names: list[str]  # names of the buckets
    sentences: list[int]  # number of sentences in each bucket
    rows: dict[str, list[Values | None]]  # name of the row -> BLEU of each bucket. None: too few sentences or no runs

    @property
    def shown(self) -> list[int]:
        """Return the indices of the buckets from the first bucket with sentences to the last bucket with sentences."""
        used = [i for i, number in enumerate(self.sentences) if number]
        return list(range(used[0], used[-1] + 1))


@dataclass(frozen=True)
class Report:
    """All numbers for the tables, plots and notes."""

    rows: list[Row]
    parts: list[str]
    columns: dict[tuple[str, str], Column]  # (test set, metric) -> scores of all rows
    baseline: str
    options: Options = field(default_factory=Options)
    published: Published | None = None
    sentence_tests: dict[tuple[str, str, str], dict[int, float]] = field(
        default_factory=dict
    )  # (row, test set, metric) -> {seed: p-value after Holm's correction}
    lengths: dict[str, Lengths] = field(default_factory=dict)  # test set -> BLEU by source length
    variance_source: str = ""  # the folder given as --seed-variance, or the field `source` of the given file
    unused_variance: bool = False  # True if --seed-variance was given but contains no score of this task

    def score(self, row: str, part: str, metric: str) -> Score | None:
        return self.columns[part, metric].scores.get(row)

    def metrics(self, part: str) -> dict[str, str]:
        """Return key -> title of each metric of a test set: BLEU, chrF, and all other metrics with which a run was scored."""
        return {metric: column.name for (own, metric), column in self.columns.items() if own == part}

    def digits(self, part: str, metric: str, wanted: int) -> int:
        """Return the number of decimals of a score: `wanted`, or `wanted` + 2 for small scores of another program.

        Scores of another program, such as COMET, are small if the means of all rows are between -1 and 1.
        """
        means = [abs(score.values.mean) for score in self.columns[part, metric].scores.values()]
        return wanted + 2 if metric not in (*METRICS, others.TER) and max(means) <= 1 else wanted

    @property
    def runs(self) -> list[Record]:
        return [run for row in self.rows for run in row.runs]

    def not_compared(self, part: str) -> list[str]:
        """Return the names of the rows that read other properties of the references of a test set than the baseline."""
        read = {row.name: row.read_from_references(part) for row in self.rows if row.score(part, "bleu")}
        return [name for name, found in read.items() if found != read.get(self.baseline, found)]

    @property
    def seeds(self) -> int:
        """Return the maximum number of seeds per row."""
        return max(len(row.runs) for row in self.rows)

    def added_parameters(self, row: Row) -> int | None:
        """Return how many parameters a row has in addition to the row `none`. Return None if this is unknown."""
        plain = next((row for row in self.rows if row.name == "none" and row.runs), None)
        return row.runs[0].parameters - plain.runs[0].parameters if plain and row.runs else None


def make_report(
    records: list[Record],
    options: Options | None = None,
    published: Published | None = None,
    variance: SeedVariance | None = None,
) -> Report:
    """Compare runs. All settings of the runs except method and seed must be equal (`require_comparable`).

    Raises:
        PositionError: A spec is wrong, no training run has ended, the baseline has no runs, the published scores are of
            another test set, or sentence statistics are damaged.
    """
    options, variance = options or Options(), variance or SeedVariance()
    rows = make_rows(records, options.expected)
    unfinished = unfinished_runs(records)
    records = [record for record in records if not record.unfinished]
    if not records:
        raise PositionError(
            f"{unfinished}: training did not end. Expected at least one training run that has ended. "
            "Resume the training runs, then decode and score again."
        )
    parts = list(dict.fromkeys(part for record in records for part in record.parts))
    if published and published.part not in parts:
        raise PositionError(
            f"--published: the scores are of test set {shorten(published.part)}. "
            f"Expected one of {join(parts, 8)}, the test sets of "
            "the runs. Correct the part in the file."
        )
    baseline = _baseline(rows, options.baseline)
    _require_equal_lengths(rows, parts)
    of_task = {part: _of_task(variance, records, part) for part in parts}
    taken = {(identity(record), record.seed) for record in records}
    runs = {
        part: {path: run for path, run in found.items() if (identity(run), run.seed) not in taken}
        for part, found in of_task.items()
    }
    elsewhere = {
        (part, metric): _with_scores(runs[part], variance, part, metric) for part in parts for metric in _metrics(records, part)
    }
    columns = {
        (part, metric): _column(rows, part, metric, baseline, more, options.seed_test)
        for (part, metric), more in elsewhere.items()
    }
    if options.order == "score":
        scores = columns[parts[0], next(iter(METRICS))].scores
        rows = sorted(rows, key=lambda row: -scores[row.name].values.mean if row.name in scores else np.inf)
    unused = bool(variance.source) and not any(of_task.values()) and not any(elsewhere.values())
    report = Report(rows, parts, columns, baseline.name, options, _by_row(published, rows), {}, {}, variance.source, unused)
    for part in parts if options.sentences else ():
        if lengths := _lengths(rows, part):
            report.lengths[part] = lengths
        report.sentence_tests.update(_sentence_tests(rows, part, list(report.metrics(part)), baseline, options))
    return report


def _require_equal_lengths(rows: list[Row], parts: list[str]) -> None:
    """Raise PositionError if lengths were requested for some seeds of a row only."""
    for row in rows:
        for part in parts:
            seeds: dict[bool, list[int]] = {}
            for run in row.runs:
                if part in run.parts:
                    seeds.setdefault(run.parts[part].asked is None, []).append(run.seed)
            if len(seeds) > 1:
                raise PositionError(
                    f"{shorten(row.name)}, test set {shorten(part)}: output lengths were requested for seed "
                    f"{join(list(map(str, seeds[False])), 4)}, but not for seed {join(list(map(str, seeds[True])), 4)}. Expected "
                    "the same decoding for all seeds of a row. Decode and score these runs again."
                )


def _by_row(published: Published | None, rows: list[Row]) -> Published | None:
    """Replace the spec of each published score by the name of the row with the same options.

    For example, t5 replaces t5:buckets=32, because 32 is the default value of buckets.
    """
    if published is None:
        return None
    names = {identity(row.runs[0]): row.name for row in rows if row.runs}

    def named(spec: str) -> str:
        try:
            return names.get(_find(spec, names), spec)
        except PositionError:  # a name of the publication that is not a spec
            return spec

    specs: dict[str, str] = {}  # name of the row -> spec in the file
    for spec in published.figures:
        if specs.setdefault(named(spec), spec) != spec:
            raise PositionError(
                f"--published: {shorten(specs[named(spec)])} and {shorten(spec)} are the same row. Expected one score per row. "
                "Remove one of them from the file."
            )
    return published.model_copy(update={"figures": {row: published.figures[spec] for row, spec in specs.items()}})


def _metrics(records: list[Record], part: str) -> list[str]:
    """Return the keys of the metrics of a test set: BLEU, chrF, TER, then scores of other programs in alphabetical order."""
    more = {name for record in records if part in record.parts for name in record.parts[part].others}
    return [*METRICS, *sorted(more, key=lambda name: (name != others.TER, name))]


def _baseline(rows: list[Row], wanted: str | None) -> Row:
    """Return the row of the spec `wanted`. By default, return the row of `sinusoidal`, or else the first row with runs.

    If no row has the default options of `sinusoidal`, the only row of this method with other options is the baseline.
    """
    if wanted is not None:
        return find_row(rows, wanted)
    run = [row for row in rows if row.runs]
    found = _rows_of(run, BASELINE) or [row for row in run if _only_method(row.runs[0].method) == BASELINE]
    return found[0] if len(found) == 1 else run[0]


def _only_method(specs: Mapping[str, str]) -> str | None:
    """Return the name of the method if encoder and decoder have this method only, and cross-attention has no method."""
    names = {spec.partition(":")[0].strip() for site, spec in specs.items() if site != "cross"}
    return names.pop() if len(names) == 1 and specs["cross"] == "none" and "+" not in "".join(specs.values()) else None


# --- scores over seeds ---


def _of_task(variance: SeedVariance, records: list[Record], part: str) -> dict[Path, Record]:
    """Return the runs of --seed-variance that have the same task as the table. Some of them can also be in the table."""
    wanted = {name: settings for record in reversed(records) for name, settings in conditions(record).items()}
    return {path: run for path, run in variance.records.items() if same_task(run, wanted, part)}


#: (name, key, scores) of each row of --seed-variance. If --seed-variance is a folder of runs, the key is (identity, versions).
#: If --seed-variance is a file, the key is None
_Others = list[tuple[str, Any, list[float]]]


def _with_scores(runs: Mapping[Path, Record], variance: SeedVariance, part: str, metric: str) -> _Others:
    """Return name, key and scores of each row of --seed-variance, for one test set and one metric.

    The key identifies the method and the versions of posenc, fairseq, torch and sacreBLEU. All runs with the same key are one
    row. If --seed-variance is a file, each list of scores in the file is one row with the key None.

    Runs with equal method, seed and score are copies of one training run. They have one score. Raise PositionError if
    two runs of one row have the same seed, but different scores.
    """
    rows: dict[Any, tuple[str, Any, list[float]]] = {}
    first: dict[Any, Path] = {}  # (key, seed) -> path
    known: set[Any] = set()  # (identity, seed, score)
    for path, run in runs.items():
        score, key = _score_of(run.parts[part], metric), (identity(run), tuple(sorted(run.versions.items())))
        if score is None or (key[0], run.seed, score) in known:
            continue
        known.add((key[0], run.seed, score))
        earlier = first.setdefault((key, run.seed), path)
        if earlier != path:
            raise PositionError(
                f"--seed-variance {path}: {shorten(label(run))} with seed {run.seed}, as in {earlier}, but with another score. "
                "Expected each seed once. Name another folder, or remove one of the two."
            )
        rows.setdefault(key, (label(run), key, []))[2].append(score)
    scores = variance.scores.get(part, {}).get(metric, ())
    return [*rows.values(), *((f"row {i}", None, list(row)) for i, row in enumerate(scores, 1) if row)]


def _column(rows: list[Row], part: str, metric: str, baseline: Row, elsewhere: _Others, seed_test: str) -> Column:
    percent = metric in METRICS  # TER has no upper limit
    limits = (0, 100) if percent else (0 if metric == others.TER else -np.inf, np.inf)
    run = [(row, values) for row in rows if (values := row.score(part, metric)) is not None]
    scored = [record.parts[part].others for row in rows for record in row.runs if part in record.parts]
    smaller = any(found[metric].smaller_is_better for found in scored if metric in found)
    seeds = sorted({seed for _, values in run for seed in values.by_seed})
    scores = _matrix([[values.by_seed.get(seed, np.nan) for seed in seeds] for _, values in run])
    scale = statistics.choose_scale(np.nanmean(scores, -1)) if percent else statistics.POINTS
    spread, known = _spread(run, scores, elsewhere, scale, percent)
    read = [row.read_from_references(part) for row, _ in run]
    inputs = baseline.read_from_references(part) if baseline.score(part, metric) else max(read, key=read.count)
    alike = np.array([own == inputs for own in read])
    order = sorted(range(len(run)), key=lambda i: (not alike[i], run[i][1].mean if smaller else -run[i][1].mean))
    ranked = order[: max(alike.sum(), 1)]
    best = ranked[0]
    names = [row.name for row, _ in run]
    at = names.index(baseline.name) if baseline.name in names else None

    def compared(row: int) -> statistics.Comparison:
        """Compare this row with all rows that have the same inputs as the baseline.

        By default, the comparison uses all seeds of all rows. With --seed-test paired, the
        comparison uses only the seeds of this row.
        """
        if seed_test != "paired":
            return statistics.compare(scores, row, known, scale, tested=alike)
        return statistics.compare(scores[:, np.isfinite(scores[row])], row, known, scale, True, percent, alike)

    over_all = statistics.compare(scores, best if at is None else at, known, scale, tested=alike)
    to_base = compared(best if at is None else at)
    # the best row is chosen by its scores, so p is corrected for all pairs of rows. The first pairs are those of the best row
    pairs = [compared(row).p[ranked[place + 1 :]] for place, row in enumerate(ranked)]
    to_best = dict(zip(ranked[1:], statistics.holm(np.concatenate(pairs))))
    some_tested = np.isfinite([*to_best.values()]).any()
    found = {}
    for i, (row, values) in enumerate(run):
        equal = values.mean == run[best][1].mean
        p = to_best.get(i, np.nan)
        rank = BEST if equal else TIED if p > statistics.ALPHA else UNTESTED if np.isnan(p) and some_tested else ""
        tested = to_base if np.isfinite(to_base.p[i]) else over_all  # if p is unknown, use the means over all seeds
        difference = None if at is None or i == at or not alike[i] else _difference(tested, i, at, to_base)
        low, high = (ends[i].clip(*limits) for ends in (over_all.low, over_all.high))
        found[row.name] = Score(values, _number(low), _number(high), difference, rank if alike[i] and alike.sum() > 1 else "")
    return Column(METRICS.get(metric) or others.title(metric), found, spread, smaller)


def _difference(found: statistics.Comparison, i: int, baseline: int, tested: statistics.Comparison) -> Difference:
    """Return the difference between row i and the baseline.

    The difference of the means and the numbers of seeds are from `found`. The interval, the p-values and the test are from
    `tested`.
    """
    numbers = (_number(array[i]) for array in (tested.difference_low, tested.difference_high, tested.p, tested.holm))
    return Difference(float(found.difference[i]), (int(found.n[i]), int(found.n[baseline])), *numbers, str(tested.test[i]))


def _spread(
    run: list[tuple[Row, Values]], scores: statistics.Array, elsewhere: _Others, scale: str, percent: bool
) -> tuple[Spread | None, statistics.Pool | None]:
    """Return the pooled variance over seeds.

    The function pools the rows of the table with the rows of --seed-variance.

    A row of --seed-variance can have the same method, settings and software versions as a row of the table. In this case, the
    seeds of both rows are pooled as one row. Return (None, None) if the variance is unknown.
    """
    by_key = {(identity(row.runs[0]), tuple(sorted(row.runs[0].versions.items()))): i for i, (row, _) in enumerate(run)}
    lists = [[number for number in line if np.isfinite(number)] for line in scores.tolist()]
    for _, key, numbers in elsewhere:
        if key in by_key:
            lists[by_key[key]] = lists[by_key[key]] + numbers
        else:
            lists.append(numbers)
    names = [row.name for row, _ in run] + [name for name, key, _ in elsewhere if key not in by_key]
    table = _matrix(lists)
    known = statistics.pool(table, scale, percent)
    if not np.isfinite(known.variance):
        return None, None
    used = np.flatnonzero(statistics.poolable(np.isfinite(table).sum(-1), np.nanmean(table, -1), percent))
    inside, outside = [names[i] for i in used if i < len(run)], [names[i] for i in used if i >= len(run)]
    deviation = float(np.sqrt(known.variance))
    runs = sum(len(lists[i]) for i in used)
    added = runs - sum(int(np.isfinite(scores[i]).sum()) for i in used if i < len(run))
    equal = statistics.equal_variance(table, scale, percent)
    return Spread(deviation, int(known.degrees), scale, inside, outside, added, runs, equal), known


def _matrix(rows: Sequence[Sequence[float]]) -> statistics.Array:
    """Return the M rows as a matrix [M, S], where S is the length of the longest row. Shorter rows are filled with NaN."""
    width = max(map(len, rows))
    return np.array([[*row, *[np.nan] * (width - len(row))] for row in rows], float)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- tests over sentences ---


def _sentence_tests(
    rows: list[Row], part: str, metrics: list[str], baseline: Row, options: Options
) -> dict[tuple[str, str, str], dict[int, float]]:
    """Return (row, test set, metric) -> {seed: p-value}, for each seed that the row and the baseline share.

    Holm's correction is computed for each seed and each metric separately. It is a correction for the number of rows.
    """
    by_seed: dict[int, dict[str, dict[str, statistics.Array]]] = {}
    for row in rows:
        for run in row.runs if row.read_from_references(part) == baseline.read_from_references(part) else ():
            by_seed.setdefault(run.seed, {})[row.name] = sentence_counts(run, part)
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for seed, systems in sorted(by_seed.items()):
        base = systems.pop(baseline.name, {})
        for metric in filter(base.__contains__, metrics):
            tested = {
                name: sentence_test(metric, base[metric], counts[metric], options.test, options.samples)
                for name, counts in systems.items()
                if metric in counts
            }
            for name, p in zip(tested, statistics.holm(np.array([*tested.values()]))):
                found.setdefault((name, part, metric), {})[seed] = float(p)
    return found


# --- scores by source length ---


def _lengths(rows: list[Row], part: str) -> Lengths | None:
    """Return BLEU by source length, or None if no run has source lengths."""
    counted = {
        (row.name, run.seed): sentences
        for row in rows
        for run in row.runs
        if (sentences := sentence_statistics(run, part)) and sentences.source_words
    }
    if not counted:
        return None
    buckets = buckets_up_to(max(max(sentences.source_words) for sentences in counted.values()))
    found = {key: bleu_by_length(sentences, buckets) for key, sentences in counted.items()}
    numbers = [number for number, _ in next(iter(found.values()))]

    def values(row: Row, i: int) -> Values | None:
        by_seed = {seed: bleu[i][1] for (name, seed), bleu in found.items() if name == row.name and bleu[i][1] is not None}
        return Values(by_seed) if by_seed and numbers[i] >= MIN_SENTENCES else None

    shown = {row.name: [values(row, i) for i in range(len(buckets))] for row in rows}
    return Lengths([bucket_name(bucket) for bucket in buckets], numbers, shown)


# --- rows ---


def make_rows(records: list[Record], expected: Sequence[str]) -> list[Row]:
    """Return one row per method: first the expected specs in the given order, then other methods in alphabetical order.

    An expected spec without runs also has a row. Runs with the same options are in one row, even if their specs are written
    differently. Raise PositionError if an expected spec is invalid, or if runs with different options have the same row name.
    """
    groups: dict[Any, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(identity(record), []).append(record)
    names = {key: _name(runs, expected) for key, runs in groups.items()}
    same = [name for name in names.values() if list(names.values()).count(name) > 1]
    if same:
        raise PositionError(
            f"{shorten(same[0])}: runs with different options (signature). Expected the same options. Move some of the runs to "
            "another folder."
        )
    specs_of: dict[Any, str] = {}
    for spec in expected:
        specs_of.setdefault(_find(spec, names) or spec_key(spec), spec)
    rows = []
    for key in dict.fromkeys([*specs_of, *sorted(groups, key=names.__getitem__)]):
        ended, unfinished = ([run for run in groups.get(key, ()) if run.unfinished is wanted] for wanted in (False, True))
        specs = groups[key][0].method if key in groups else sites_of(specs_of[key])
        rows.append(Row(names.get(key) or describe(specs), ended, _reconstructed(specs), unfinished))
    return rows


def _name(runs: list[Record], expected: Sequence[str]) -> str:
    """Return the name of the row of these runs.

    The name is the first text in `expected` that `label` returns for one of these runs. Without such a text, the name is the
    shortest label, for example t5 instead of t5:buckets=32.
    """
    labels = sorted({label(run) for run in runs}, key=lambda text: (len(text), text))
    return next((text for text in expected if text in labels), labels[0])


def _find(spec: str, names: dict[Any, str]) -> Any:
    """Return the key of the row with this name.

    If there is no such row, return the key of the row with the same options. If there is no such row either, return None.
    """
    same = [key for key, name in names.items() if name == spec]
    return same[0] if same else key if (key := spec_key(spec)) in names else None


def spec_key(spec: str) -> tuple[Any, ...]:
    """Return the key (`identity`) of runs with this spec. The spec may contain separate specs for several sites."""
    return tuple(sorted((site, parse(found).signature) for site, found in sites_of(spec).items())), (), False


def find_row(rows: list[Row], spec: str) -> Row:
    """Return the row of the baseline. If not exactly one row has this spec, raise PositionError with up to eight row names."""
    run = [row for row in rows if row.runs]
    try:
        found = _rows_of(run, spec)
    except PositionError:  # an invalid spec is not the spec of any row
        found = []
    if len(found) != 1:
        problem = "several rows" if found else "no run"
        names = [row.name for row in found or run]
        raise PositionError(f"--baseline {shorten(spec)}: {problem} of this method. Expected one of {join(names, 8)}.")
    return found[0]


def _rows_of(rows: list[Row], spec: str) -> list[Row]:
    """Return the row with this name, or else the row with the same options.

    If there is no such row either, return all rows whose names consist of a spec with the same options and of properties in
    parentheses. Rows with random structure are left out.
    """
    keys = {identity(row.runs[0]): row for row in rows}
    found = _find(spec, {key: row.name for key, row in keys.items()})
    if found is not None:
        return [keys[found]]
    specs, *_ = spec_key(spec)
    return [row for (own, _, random), row in keys.items() if own == specs and not random]


def _reconstructed(specs: Mapping[str, str]) -> bool:
    """Return whether one of the methods in these specs has the evidence `reconstruction`."""
    from ... import registry  # imported here, because the registry imports torch

    methods = {part.partition(":")[0].strip() for spec in specs.values() for part in spec.split("+")}
    return any(registry.card(method).evidence == "reconstruction" for method in methods & set(registry.names()))

"""The tables, sentences and notes of a report as text. All output formats show the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...common.messages import join
from ...data.side.reorder import ORACLE
from ..scoring.record import PartScores, Record
from ..scoring.sentences import METRICS
from . import statistics
from .comparison import BEST, TIED, UNTESTED, Difference, Report, Row, Score, Spread, Values
from .options import RANDOMIZATION, TESTS
from .records import diverged_runs, unfinished_runs
from .sentences import MIN_SENTENCES, random_seed

NOT_RUN, NOT_SCORED = "not run", "not scored"
NO_BASELINE = "no score of the baseline"
OTHER_INPUTS = "not compared"
NOT_MEASURED = "not measured"
NOT_FINITE = "not finite"

#: maximum number of methods that a sentence lists. For more methods, the sentence contains only their number
_NAMED = 8

_LINES = "Of more than 20 rows, the plot contains the baseline and the rows with the highest BLEU on the first test set."


@dataclass(frozen=True)
class Table:
    """A table with a title. All cells are text."""

    title: str
    head: list[str]
    body: list[list[str]]
    figure: str | None = None  # name of the plot with the same numbers
    text: list[str] = field(default_factory=list)  # sentences about the results in the table
    ranks: dict[tuple[int, int], str] = field(default_factory=dict)  # (row, column): BEST, TIED or UNTESTED
    caption: str = ""  # caption of the plot


def all_tables(report: Report, digits: int = 1) -> list[Table]:
    """Return the tables of a full report."""
    return [*compared_tables(report, digits), _training(report), *_lengths(report, digits)]


def compared_tables(report: Report, digits: int = 1) -> list[Table]:
    """Return the table of scores, the table of differences to the baseline, and the table of significance tests.

    A significance test compares a method with the baseline over the test sentences. If the report contains no such tests,
    the third table is left out.
    """
    found = [replace(score_table(report, digits), text=[]), _differences(report, digits)]
    return found + ([_sentence_tests(report)] if report.sentence_tests else [])


def score_table(report: Report, digits: int = 1) -> Table:
    """Return the table of scores, which is the only table by default."""
    several = report.seeds > 1  # a row with several seeds needs the column with their number
    head = ["method", *["seeds"] * several]
    body = [[row.title, *[str(len(row.runs)) if row.runs else NOT_RUN] * several] for row in report.rows]
    ranks = {}
    for (part, metric), column in report.columns.items():
        head.append(f"{part} {column.name}")
        for i, (row, cells) in enumerate(zip(report.rows, body)):
            score = column.scores.get(row.name)
            ranks[i, len(cells)] = score.rank if score else ""
            cells.append(_score(score, len(row.runs), report.digits(part, metric, digits)))
        published = report.published
        if published and (published.part, published.metric) == (part, metric):
            head.append(f"published {part} {column.name}")
            for row, cells in zip(report.rows, body):
                cells.append(f"{published.figures[row.name]:g}" if row.name in published.figures else "")
    return Table("Scores", head, body, "scores", conclusions(report, digits), ranks, _caption(report))


def _caption(report: Report) -> str:
    """Return the caption of the plot of scores. The caption explains only dots that the plot contains."""
    found = ["Scores of every method: the mean over seeds and its 95 % interval, and every seed as a small circle."]
    rows = [row.name for row in report.rows if row.runs and row.name != report.baseline]
    scores = [score for column in report.columns.values() for row in rows if (score := column.scores.get(row))]
    tested = [score.difference is not None and score.difference.known for score in scores]
    if rows:
        found.append("The vertical line is the baseline.")
    if any(tested):
        found.append("Filled dots differ from it (corrected p at most .05).")
    if not all(tested):
        found.append("Half-filled dots were not tested.")
    return " ".join(found)


def _score(score: Score | None, runs: int, digits: int) -> str:
    if score is None:
        return NOT_SCORED if runs else NOT_RUN
    lacking = f" (n = {score.values.n})" if score.values.n != runs else ""
    return f"{score.values.mean:.{digits}f}{interval(score.low, score.high, digits)}{lacking}"


def interval(low: float | None, high: float | None, digits: int, sign: str = "") -> str:
    """Return an interval as text such as ' [34.0, 35.6]', or "" if the interval is unknown."""
    return "" if low is None or high is None else f" [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


# --- differences ---


def _by_column(report: Report, cell: Callable[[Row, str, str], str]) -> tuple[list[str], list[list[str]]]:
    """Return head and body of a table with one column per test set and metric. `cell` returns the text of one cell."""
    head = ["method", *(f"{part} {column.name}" for (part, _), column in report.columns.items())]
    return head, [[row.title, *(cell(row, *key) for key in report.columns)] for row in report.rows]


def _differences(report: Report, digits: int) -> Table:
    table = _by_column(report, lambda row, *key: _difference_cell(report, row, *key, report.digits(*key, digits)))
    return Table(f"Difference to {report.baseline}", *table, text=conclusions(report, digits))


def _difference_cell(report: Report, row: Row, part: str, metric: str, digits: int) -> str:
    score = report.score(row.name, part, metric)
    if score is None:
        return NOT_SCORED if row.runs else NOT_RUN
    if row.name == report.baseline:
        return "baseline"
    if score.difference is None:
        return OTHER_INPUTS if row.name in report.not_compared(part) else NO_BASELINE
    return difference_text(score.difference, digits)


def difference_text(difference: Difference, digits: int = 1) -> str:
    """Return a difference with its interval and its p-value, for example '+1.6 [+0.4, +2.8], p = .030'.

    The p-value is the p-value after Holm's correction. The text does not contain unknown numbers.
    """
    known = f", {p_text(difference.holm)}" if difference.holm is not None else ""
    return f"{difference.mean:+.{digits}f}{interval(difference.low, difference.high, digits, '+')}{known}"


def p_text(p: float) -> str:
    """Return a p-value as text without the leading zero, for example 'p = .030'."""
    if p < 0.001:
        return "p < .001"
    if p >= 0.995:
        return "p = 1"
    digits = 2 if p >= 0.1 else 3
    while round(p, digits) == 0.05 and p != 0.05:  # show on which side of the level of significance the number is
        digits += 1
    return f"p = {p:.{digits}f}".replace("0.", ".", 1)


def conclusions(report: Report, digits: int = 1) -> list[str]:
    """Return at most one sentence per test set and metric.

    The sentence names or counts the rows that differ from the baseline, or explains why no row can be compared. If there are
    no other rows, there is no sentence.
    """
    found = [_conclusion(report, part, metric, report.digits(part, metric, digits)) for part, metric in report.columns]
    return [sentence for sentence in found if sentence]


def _conclusion(report: Report, part: str, metric: str, digits: int) -> str:
    column = report.columns[part, metric]
    start = f"{part} {column.name}"
    compared = {row.name: score.difference for row in report.rows if (score := column.scores.get(row.name)) and score.difference}
    if not compared:
        lacking = column.scores and report.baseline not in column.scores
        return f"{start}: {report.baseline} has no score, so no row can be compared with it." if lacking else ""
    differing = {row: difference for row, difference in compared.items() if difference.differs}
    known = [difference for difference in compared.values() if difference.known]
    if not known:
        return f"{start}: {_unknown(report, compared.values())}, so no row can be compared with {report.baseline}."
    if not differing:
        text = f"{start}: no row differs from {report.baseline}"
    elif len(differing) <= _NAMED:
        verb = "differs" if len(differing) == 1 else "differ"
        rows = [f"{row} ({in_words(difference, column.name, digits)})" for row, difference in differing.items()]
        text = f"{start}: {'; '.join(rows)} {verb} from {report.baseline}"
    else:
        above = sum(difference.mean > 0 for difference in differing.values())
        signs = f"{above} higher and {len(differing) - above} lower"
        text = f"{start}: {len(differing)} of {len(known)} rows differ from {report.baseline}, {signs}"
    rest = [difference for difference in known if not difference.differs]
    if rest:
        verb = "row is" if len(rest) == 1 else "rows are"
        text += f"; {len(rest)} {verb} not distinguishable from it with {_seeds(rest)}"
    unknown = [difference for difference in compared.values() if not difference.known]
    return text + (f"; {len(unknown)} cannot be compared, because {_unknown(report, unknown, 'their')}." if unknown else ".")


def _unknown(report: Report, differences: Iterable[Difference], whose: str = "the") -> str:
    """Return the reason why no significance test was computed for these differences."""
    if report.options.seed_test == "paired":
        return f"the rows lack seeds of {report.baseline}, or the variance of the paired test is not known"
    zero = all(min(difference.seeds) >= statistics.WELCH_SEEDS for difference in differences)
    return f"{whose} seed variance is {'zero' if zero else 'not known'}"


def in_words(difference: Difference, unit: str, digits: int) -> str:
    """Return a difference with interval, p-value and numbers of seeds, in words."""
    own, base = difference.seeds
    seeds = f"{own} seed{'s' * (own > 1)} each" if own == base else f"{own} and {base} seeds"
    limits = f"{difference.low:.{digits}f} to {difference.high:.{digits}f}"
    p = p_text(difference.holm if difference.holm is not None else 1.0)
    return f"{difference.mean:+.{digits}f} {unit}, 95 % interval {limits}, corrected {p}, {seeds}"


def _seeds(differences: list[Difference]) -> str:
    own = sorted({difference.seeds[0] for difference in differences})
    base = max(difference.seeds[1] for difference in differences)
    several = f"{own[0]} to {own[-1]} seeds" if len(own) > 1 else f"{own[0]} seed{'s' * (own[0] > 1)}"
    return f"{several} each" if own == [base] else f"{several}, and {base} of the baseline"


def _sentence_tests(report: Report) -> Table:
    tests = {key: ", ".join(map(p_text, p.values())) for key, p in report.sentence_tests.items()}
    tests |= {(report.baseline, *key): "baseline" for key in report.columns}
    table = _by_column(report, lambda row, *key: tests.get((row.name, *key)) or "not tested")
    options = report.options
    samples = f"{options.samples:,} {'trials' if options.test == RANDOMIZATION else 'samples'}"
    seed = random_seed()
    text = [
        f"p of the difference to {report.baseline} over the choice of test sentences, for each training seed that both have: "
        f"two-sided {TESTS[options.test]} ({samples}, random seed {'none' if seed is None else seed}), "
        "corrected by Holm over the rows. It does not cover the variance over training seeds."
    ]
    return Table("Tests over sentences", *table, text=text)


# --- training and lengths ---


def _training(report: Report) -> Table:
    columns: dict[str, Callable[[Row], str]] = {"parameters": lambda row: f"{row.runs[0].parameters:,}"}
    if any(report.added_parameters(row) is not None for row in report.rows):
        columns["added to none"] = lambda row: f"{report.added_parameters(row):,}"
    columns |= {"training tokens/s": _speed, "training time": _time, "peak memory": _memory, "validation loss": _loss}
    body = [[row.title, *(cell(row) if row.runs else NOT_RUN for cell in columns.values())] for row in report.rows]
    caption = f"Validation loss in the course of training. {_LINES}"
    if any(row.diverged_at is not None for row in report.rows):
        caption += " A cross marks the last loss before a seed has a loss that is NaN or infinite."
    return Table("Training", ["method", *columns], body, "learning", caption=caption)


def _speed(row: Row) -> str:
    values = row.values(lambda run: run.tokens_per_second)
    return f"{values.mean:,.0f}" if values else NOT_MEASURED


def _time(row: Row) -> str:
    values = row.values(lambda run: run.training_seconds)
    if values is None:
        return NOT_MEASURED
    seconds = round(values.mean)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _memory(row: Row) -> str:
    return NOT_MEASURED if row.peak_memory is None else f"{row.peak_memory:.2f} GiB"


def _loss(row: Row) -> str:
    if row.final_loss is None:
        return NOT_MEASURED if row.diverged_at is None else NOT_FINITE
    return _values(row.final_loss, len(row.runs), 3)


def _values(values: Values | None, runs: int, digits: int) -> str:
    """Return 'mean ± standard deviation'. Append the number of values if some runs have no value."""
    if values is None:
        return NOT_SCORED if runs else NOT_RUN
    spread = "" if values.sd is None else f" ± {values.sd:.{digits}f}"
    lacking = f" (n = {values.n})" if values.n != runs else ""
    return f"{values.mean:.{digits}f}{spread}{lacking}"


def _lengths(report: Report, digits: int) -> list[Table]:
    found = []
    for number, (part, lengths) in enumerate(report.lengths.items(), 1):
        head = ["method", *(f"{lengths.names[i]} words (n = {lengths.sentences[i]})" for i in lengths.shown)]
        body = [
            [
                row.title,
                *(
                    f"n < {MIN_SENTENCES}"
                    if lengths.sentences[i] < MIN_SENTENCES
                    else _values(lengths.rows[row.name][i], len(row.runs), digits)
                    for i in lengths.shown
                ),
            ]
            for row in report.rows
        ]
        figure = "length" if number == len(report.lengths) else None  # one plot, after the last table
        caption = f"BLEU by the number of source words. {_LINES}"
        found.append(Table(f"BLEU by source length: {part}", head, body, figure, caption=caption))
    return found


# --- notes ---


def notes(report: Report, full: bool = False) -> list[str]:
    """Return the notes of a report: the conditions that all rows share, and how the numbers were computed.

    `full` adds notes about decoding and devices, and the definitions of time and memory.
    """
    runs = report.runs
    versions = ", ".join(f"{name} {version}" for name, version in runs[0].versions.items())
    scored = {part: scores for run in runs for part, scores in run.parts.items()}
    sizes = ", ".join(f"{part} {scores.sentences} sentences" for part, scores in scored.items())
    signatures = dict.fromkeys(
        f"{name} {getattr(scores, f'{metric}_signature')}" for metric, name in METRICS.items() for scores in scored.values()
    )
    signatures |= dict.fromkeys(
        other.metric for run in runs for scores in run.parts.values() for _, other in sorted(scores.others.items())
    )
    data = " ".join(filter(None, (runs[0].corpus, runs[0].data)))
    found = [f"data {data}: {sizes}; {_updates(runs)}; {versions}", *signatures, *_score_notes(report)]
    if unfinished := unfinished_runs([run for row in report.rows for run in row.unfinished]):
        found.append(f"training runs that did not end are left out: {unfinished}")
    if diverged := diverged_runs(runs):
        found.append(f"validation loss NaN or infinite: {diverged}")
    if any(row.reconstruction for row in report.rows):
        found.append("†: a reconstruction, the exact form of the paper could not be read (posenc show NAME)")
    if sources := sorted({source for row in report.rows for source in row.asked}):
        found.append(
            f"‡: decoding requested output lengths ({', '.join(sources)}); rows without this mark had no requested lengths"
        )
    if oracles := [row.name for row in report.rows if any("order" in row.read_from_references(part) for part in report.parts)]:
        found.append(f"reorderings of {join(oracles)}: {ORACLE}")
    if any(report.not_compared(part) for part in report.parts):
        found.append(
            f"{OTHER_INPUTS}: decoding read other properties of the references (length or order) than decoding with "
            f"{report.baseline}, so the row is compared neither with {report.baseline} nor with the best"
        )
    if report.published:
        figures = report.published
        ours = "are the same as in this table" if figures.same_task else "are not the same as in this table"
        source = f"{figures.source.rstrip('.')}. Its data and settings {ours}"
        name = report.columns[figures.part, figures.metric].name
        found.append(f"published {figures.part} {name}: {source}, and it enters no computation")
        if without := [name for name in figures.figures if name not in {row.name for row in report.rows}]:
            found.append(f"published scores without a row in this table: {join(without, _NAMED)}")
    return found + (_decoding_notes(scored) + _training_notes(runs) if full else [])


def _updates(runs: list[Record]) -> str:
    reached = sorted({run.updates for run in runs})
    numbers = " to ".join(map(str, dict.fromkeys((reached[0], reached[-1]))))
    if runs[0].best_checkpoint:
        numbers = f"best checkpoints, of {numbers}"
    if not runs[0].stops_early:
        return f"{numbers} updates"
    settings = runs[0].settings
    limit = f" or {settings['max_update']} updates" if settings.get("max_update") else ""
    return f"{numbers} updates, until {settings['patience']} validations without a smaller loss{limit}"


def _score_notes(report: Report) -> Iterator[str]:
    """Yield notes about how scores, intervals and p-values are computed, and about the assumptions."""
    if smaller := dict.fromkeys(column.name for column in report.columns.values() if column.smaller_is_better):
        yield f"smaller is better: {', '.join(smaller)}"
    scores = [score for column in report.columns.values() for score in column.scores.values()]
    seeds = ", ".join(map(str, sorted({run.seed for run in report.runs})))
    if any(score.low is not None for score in scores):
        yield f"scores: mean over seeds ({seeds} in the table) [95 % interval of the mean, Student's t]"
    elif report.seeds > 1:
        yield f"scores: mean over seeds {seeds}"
    ranks = {score.rank for score in scores}
    tied = f"; italic: {TIED} (p > .05, corrected by Holm over all pairs of rows)" if TIED in ranks else ""
    if len(report.rows) > 1 and BEST in ranks:
        yield f"bold: the best{tied}"
    ranked = [(name, score.rank) for column in report.columns.values() for name, score in column.scores.items()]
    if untested := list(dict.fromkeys(name for name, rank in ranked if rank == UNTESTED)):
        yield f"{UNTESTED} by a test in at least one column: {join(untested, _NAMED)}"
    yield from _test_notes({score.difference.test for score in scores if score.difference and score.difference.test}, report)
    if report.unused_variance:
        yield f"seed variance: {report.variance_source} has no run of this task"


def _test_notes(tests: set[str], report: Report) -> Iterator[str]:
    if tests:
        paired = f"the seeds of {report.baseline} (rows without p: over all seeds of both)"
        seeds = paired if statistics.PAIRED in tests else "all seeds of both"
        yield (
            f"difference to {report.baseline}: mean of the row minus mean of {report.baseline}, over {seeds} "
            "[95 % interval], p corrected by Holm over the rows"
        )
    if statistics.WELCH in tests:
        yield f"rows with {statistics.WELCH_SEEDS} seeds or more: Welch's t test, each row with its own variance"
    if statistics.PAIRED in tests:
        yield "t test of rows with the same seeds, in pairs; it assumes that all rows have the same variance (--seed-test paired)"
    few = any(score.values.n < statistics.WELCH_SEEDS for column in report.columns.values() for score in column.scores.values())
    what = "intervals that assume" if statistics.PAIRED in tests else "t test that assumes"
    pooled: dict[str, list[str]] = {}
    for (part, metric), column in report.columns.items():
        if column.spread and few:
            pooled.setdefault(_origin(report, column.spread), []).append(_spread(report, part, metric))
    for origin, spreads in pooled.items():
        yield (
            f"rows with fewer than {statistics.WELCH_SEEDS} seeds: {what} the same variance over seeds in all rows, "
            f"pooled over {origin}; {'; '.join(spreads)}"
        )


def _origin(report: Report, spread: Spread) -> str:
    inside = [f"{join(spread.rows, 4)} in this table"] * bool(spread.rows)
    outside = [f"{join(spread.others, 4)} in {report.variance_source}"] * bool(spread.others)
    more = f" and {report.variance_source}" if spread.added and not outside else ""
    return f"{' and '.join(inside + outside)}{more}, {spread.runs} runs"


def _spread(report: Report, part: str, metric: str) -> str:
    name, spread = report.columns[part, metric].name, report.columns[part, metric].spread
    assert spread is not None
    unit = f"logit({name}/100)" if spread.scale == statistics.LOGIT else name
    digits = 2 if spread.scale == statistics.LOGIT else report.digits(part, metric, 1)
    bartlett = f", Bartlett {p_text(spread.equal)}" if spread.equal is not None else ""
    if spread.equal is not None and spread.equal <= statistics.ALPHA:
        bartlett += ", so the assumption is doubtful"
    return f"{part}: standard deviation {spread.deviation:.{digits}f} {unit}, {spread.degrees} degrees of freedom{bartlett}"


def _decoding_notes(scored: dict[str, PartScores]) -> list[str]:
    keys = ("beam", "lenpen", "max_len_a", "max_len_b", "post_process")
    texts: dict[str, list[str]] = {}
    for part, scores in scored.items():
        text = ", ".join(f"{key} {scores.decoding[key]}" for key in keys if scores.decoding.get(key) is not None)
        texts.setdefault(text or "settings not known", []).append(part)
    return [f"decoding of {', '.join(names)}: {text}" for text, names in texts.items()]


def _training_notes(runs: list[Record]) -> list[str]:
    devices = sorted({run.device or ("CPU" if run.settings.get("cpu") else "not known") for run in runs})
    several = "; speed and time of different devices do not compare" if len(devices) > 1 else ""
    found = [
        f"device: {', '.join(devices)}{several}",
        "training tokens/s: of the target, the median of the log",
        "training time (h:mm:ss): in updates, without validation and saving",
    ]
    kinds = sorted({run.peak_memory.of for run in runs if run.peak_memory})
    meanings = {"GPU": "allocated on the GPU, at the logged updates", "process": "resident in the training process"}
    if kinds:
        several = "; these two do not compare" if len(kinds) > 1 else ""
        found.append(f"peak memory: the largest of the seeds; {', '.join(meanings[kind] for kind in kinds)}{several}")
    return found

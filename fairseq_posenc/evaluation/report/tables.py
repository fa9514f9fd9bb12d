"""The tables of a report as text, the same for every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..scoring.sentences import METRICS
from .rows import Row, Values
from .summary import MIN_SENTENCES, Difference, Summary

NOT_RUN = "not run"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Table:
    """A title, and cells as text."""

    title: str
    head: list[str]
    body: list[list[str]]
    figure: str | None = None  # the plot of the same numbers


def all_tables(summary: Summary) -> list[Table]:
    """The tables of a full report."""
    return [*compared_tables(summary), _training(summary), *_lengths(summary)]


def compared_tables(summary: Summary) -> list[Table]:
    """Scores and their differences to the baseline."""
    return [screen_table(summary), _differences(summary)]


def screen_table(summary: Summary) -> Table:
    """The scores: the one table that a report shows unless asked for more."""
    head, body = _first_columns(summary)
    for part in summary.parts:
        for metric, name in METRICS.items():
            head.append(f"{part} {name}")
            for row, cells in zip(summary.rows, body):
                cells.append(_values(row.score(part, metric), len(row.runs)))
            published = summary.published
            if published and (published.part, published.metric) == (part, metric):
                head.append(f"published {part} {name}")
                for row, cells in zip(summary.rows, body):
                    cells.append(f"{published.figures[row.name]:g}" if row.name in published.figures else "")
    return Table("Scores", head, body, "scores")


def _values(values: Values | None, runs: int, digits: int = 1) -> str:
    if values is None:
        return NOT_RUN
    spread = "" if values.sd is None else f" ± {values.sd:.{digits}f}"
    lacking = f" (n = {values.n})" if values.n != runs else ""
    return f"{values.mean:.{digits}f}{spread}{lacking}"


def _first_columns(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """The method, and the number of seeds where there are several."""
    if summary.seeds == 1:
        return ["method"], [[row.title] for row in summary.rows]
    return ["method", "seeds"], [[row.title, str(len(row.runs)) if row.runs else NOT_RUN] for row in summary.rows]


def _differences(summary: Summary) -> Table:
    head, body = ["method"], [[row.title] for row in summary.rows]
    for part in summary.parts:
        for metric, name in METRICS.items():
            head.append(f"{part} {name}")
            for row, cells in zip(summary.rows, body):
                cells.append(_difference(summary, row, part, metric))
    return Table(f"Difference to {summary.baseline}", head, body)


def _difference(summary: Summary, row: Row, part: str, metric: str) -> str:
    if row.name == summary.baseline:
        return "baseline"
    if row.score(part, metric) is None:
        return NOT_RUN
    found = summary.differences.get((row.name, part, metric))
    if found is None:
        return "no common seed"
    mark = "~" if summary.is_chance(row.name, part, metric) else ""
    return f"{found.values.mean:+.1f}{mark} ({_p_values(found)})"


def _p_values(difference: Difference) -> str:
    if not difference.p:
        return "not tested"
    return "p = " + ", ".join(f"{p:.4f}{'*' if p < 0.05 else ''}" for p in difference.p.values())


def _training(summary: Summary) -> Table:
    columns: dict[str, Callable[[Row], str]] = {"parameters": lambda row: f"{row.runs[0].parameters:,}"}
    if any(summary.added_parameters(row) is not None for row in summary.rows):
        columns["added to none"] = lambda row: f"{summary.added_parameters(row):,}"
    columns |= {"training tokens/s": _speed, "training time": _time, "peak memory": _memory, "validation loss": _loss}
    body = [[row.title, *(cell(row) if row.runs else NOT_RUN for cell in columns.values())] for row in summary.rows]
    return Table("Training", ["method", *columns], body, "learning")


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
    return _values(row.final_loss, len(row.runs), 3) if row.final_loss else NOT_MEASURED


def _lengths(summary: Summary) -> list[Table]:
    found = []
    for part, lengths in summary.lengths.items():
        head = ["method", *(f"{lengths.names[i]} words (n = {lengths.sentences[i]})" for i in lengths.shown)]
        body = [
            [
                row.title,
                *(
                    f"n < {MIN_SENTENCES}"
                    if lengths.sentences[i] < MIN_SENTENCES
                    else _values(lengths.rows[row.name][i], len(row.runs))
                    for i in lengths.shown
                ),
            ]
            for row in summary.rows
        ]
        found.append(Table(f"BLEU by source length: {part}", head, body))
    if found:
        found[-1] = replace(found[-1], figure="length")
    return found

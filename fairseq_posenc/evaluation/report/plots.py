"""The plots of a report: scores, learning curves, and BLEU by source length."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ...plotting.style import Plot, add_legend, label_text, line_style, new_figure, render
from .comparison import Lengths, Report, Row, Score, Values
from .sentences import MIN_SENTENCES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 3.2  # width of a panel of scores, in inches
_ROW, _LINE = 0.3, 0.17  # height of a row, and of each additional line of its name, in inches
MOST_LINES = 20  # maximum number of lines in one plot


def draw_plots(report: Report) -> dict[str, Plot]:
    """Return the plots by name, without plots for which data is missing. The plots that compare rows need at least two rows."""
    plots = {"scores": _scores, "learning": _learning, "length": _length}
    names = plots if len(_shown(report)) > 1 else ("learning",)
    return {name: plot for name in names if (plot := render(name, functools.partial(plots[name], report))) is not None}


def _shown(report: Report) -> list[tuple[int, Row]]:
    return [(i, row) for i, row in enumerate(report.rows) if row.runs]


def _lines(report: Report) -> list[tuple[int, Row]]:
    """Return the rows of a line plot: the baseline and the rows with the highest BLEU on the first test set, up to MOST_LINES."""

    def rank(found: tuple[int, Row]) -> tuple[bool, float]:
        score = report.score(found[1].name, report.parts[0], "bleu")
        return found[1].name != report.baseline, math.inf if score is None else -score.values.mean

    best = sorted(_shown(report), key=rank)[:MOST_LINES]
    return [found for found in _shown(report) if found in best]


def _scores(report: Report) -> Figure:
    """Plot the scores as dots, not as bars, because the axes do not begin at zero. With many rows, all panels are in one line."""
    rows = _shown(report)
    edges = _edges([row for _, row in rows])
    lines = [[(part, *metric) for metric in report.metrics(part).items()] for part in report.parts]
    if len(rows) > MOST_LINES:
        lines = [[panel for line in lines for panel in line]]
    across = max(map(len, lines))
    figure, axes = new_figure(_PANEL * across, len(lines) * (0.9 + edges[-1]), len(lines), across, sharey=True)
    for axis in [axis for panels, line in zip(lines, axes) for axis in line[len(panels) :]]:
        axis.set_visible(False)
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    for axis, (part, metric, name) in [panel for line in zip(axes, lines) for panel in zip(*line)]:
        for middle, (index, row) in zip(middles, rows):
            score = report.score(row.name, part, metric)
            if score is not None:
                _dot(axis, middle, score, line_style(index)["color"], row.name == report.baseline)
                if row.name == report.baseline and len(rows) > 1:
                    axis.axvline(score.values.mean, color="#999999", linewidth=0.8, zorder=0)
        better = " (smaller is better)" if report.columns[part, metric].smaller_is_better else ""
        axis.set_title(label_text(f"{part}: {name}{better}"), loc="left")
        axis.set(yticks=middles, yticklabels=[label_text(row.title) for _, row in rows], ylim=(edges[-1], 0))
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.08)
    names = [label.get_window_extent(figure.canvas.get_renderer()).width for label in axes[0][0].get_yticklabels()]
    width_of_names = max(names) / figure.dpi + 0.3
    figure.set_figwidth(_PANEL * across + width_of_names)
    return figure


def _edges(rows: Sequence[Row]) -> list[float]:
    """Return the vertical boundaries of the rows in inches. A row is higher if its name has several lines."""
    return list(accumulate((_ROW + _LINE * label_text(row.title).count("\n") for row in rows), initial=0.0))


def _dot(axis: Axes, place: float, score: Score, colour: str, baseline: bool) -> None:
    """Plot one row: its mean, its interval, and every seed.

    The dot is open if the row does not differ from the baseline. It is half-filled if no test compared the row with the baseline.
    """
    values = score.values
    if score.low is not None and score.high is not None:
        axis.plot([score.low, score.high], [place, place], color=colour, linewidth=1.4, marker="|", markersize=6)
    if values.n > 1:
        seeds = list(values.by_seed.values())
        axis.scatter(seeds, [place + 0.07] * len(seeds), s=11, facecolors="none", edgecolors=colour, linewidths=0.8)
    tested = score.difference is not None and score.difference.known
    face = "white" if tested and not score.difference.differs else colour
    fill = "full" if tested or baseline else "left"
    shape = {"markersize": 6, "fillstyle": fill, "markerfacecolor": face, "markerfacecoloralt": "white"}
    axis.plot(values.mean, place, "o", color=colour, **shape)


def _learning(report: Report) -> Figure | None:
    curves = [(index, row, curve) for index, row in _lines(report) if (curve := _curve(row)) or row.diverged_at is not None]
    if not any(len(curve) > 1 for _, _, curve in curves):
        return None
    # sort the legend by the last loss of each line, from top to bottom
    curves.sort(key=lambda found: list(found[2].values())[-1].mean if found[2] else math.inf, reverse=True)
    figure, ((axis,),) = new_figure(6.5, 4)
    for index, row, curve in curves:
        updates, losses = list(curve), list(curve.values())
        style = line_style(index)
        means = [values.mean for values in losses]
        marked = 1 + len(updates) // 15  # mark only some points if there are many
        stopped = "" if row.diverged_at is None else f" (not finite at update {row.diverged_at:,})"
        axis.plot(updates, means, label=label_text(row.title + stopped), markersize=3.5, markevery=marked, **style)
        if stopped:
            axis.plot(updates[-1:], means[-1:], "x", color=style["color"], markersize=11, markeredgewidth=2)
        if _spreads(losses):
            spread = [values.sd or 0 for values in losses]
            low, high = [m - s for m, s in zip(means, spread)], [m + s for m, s in zip(means, spread)]
            axis.fill_between(updates, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axis.set(xlabel="updates", ylabel="validation loss")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    add_legend(figure, axis)
    return figure


def _curve(row: Row) -> dict[int, Values]:
    """Return the learning curve: number of updates -> losses of all seeds.

    The curve contains the validations that all seeds have, because the mean of fewer seeds would be the mean of other runs. It
    ends before the first loss of a seed that is NaN or infinite.
    """
    end = math.inf if row.diverged_at is None else row.diverged_at
    points: dict[int, dict[int, float]] = {}
    for run in row.runs:
        for updates, loss in run.learning_curve or ():
            if updates < end and loss is not None:
                points.setdefault(updates, {})[run.seed] = loss
    seeds = sum(bool(run.learning_curve) for run in row.runs)
    return {updates: Values(by_seed) for updates, by_seed in sorted(points.items()) if len(by_seed) == seeds}


def _length(report: Report) -> Figure | None:
    wanted = [part for part, lengths in report.lengths.items() if len(_places(lengths)) > 1]
    if not wanted:
        return None
    figure, axes = new_figure(6.5, 3.2 * len(wanted), len(wanted))
    for (axis,), part in zip(axes, wanted):
        _length_axis(axis, report, part)
    add_legend(figure, axes[0][0])
    return figure


def _places(lengths: Lengths) -> list[int]:
    return [i for i in lengths.shown if lengths.sentences[i] >= MIN_SENTENCES]


def _length_axis(axis: Axes, report: Report, part: str) -> None:
    lengths, rows = report.lengths[part], _lines(report)
    places = _places(lengths)
    for nth, (index, row) in enumerate(rows):
        found = [(place, values) for place, i in enumerate(places) if (values := lengths.rows[row.name][i]) is not None]
        spreads = _spreads(values for _, values in found)
        shift = min(0.03, 0.4 / len(rows)) * (nth - (len(rows) - 1) / 2) if spreads else 0
        x, y = [place + shift for place, _ in found], [values.mean for _, values in found]
        axis.plot(x, y, markersize=5, label=label_text(row.title), **line_style(index))
        if spreads:
            errors = [values.sd or 0 for _, values in found]
            axis.errorbar(x, y, yerr=errors, fmt="none", color=line_style(index)["color"], capsize=2.5, linewidth=1)
    axis.set_xticks(range(len(places)), [f"{lengths.names[i]}\nn = {lengths.sentences[i]:,}" for i in places])
    axis.set_title(label_text(part), loc="left")
    axis.set(xlabel="source words", ylabel="BLEU")


def _spreads(values: Iterable[Values]) -> bool:
    return any(value.sd is not None for value in values)

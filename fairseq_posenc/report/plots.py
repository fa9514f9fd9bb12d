"""The plots of a report: scores, learning curves, BLEU by source length."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..plotting.style import Plot, add_legend, label_text, line_style, new_figure, render
from ..scoring.sentences import METRICS
from .rows import Row, Values
from .summary import MIN_SENTENCES, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 3.2  # inches: the width of one of the panels of scores


def draw_plots(summary: Summary) -> dict[str, Plot]:
    """The plots that have something to show, by name."""
    plots = {"scores": _scores, "learning": _learning, "length": _length}
    found = {name: render(name, functools.partial(plot, summary)) for name, plot in plots.items()}
    return {name: plot for name, plot in found.items() if plot is not None}


def _shown(summary: Summary) -> list[tuple[int, Row]]:
    return [(i, row) for i, row in enumerate(summary.rows) if row.runs]


def _scores(summary: Summary) -> Figure:
    """Dots, not bars: the axes do not begin at zero."""
    rows = _shown(summary)
    labels = [label_text(row.title) for _, row in rows]
    lines = max(label.count("\n") + 1 for label in labels)
    height = len(summary.parts) * (0.9 + len(rows) * max(0.3, 0.2 * lines))
    figure, axes = new_figure(_PANEL * len(METRICS), height, len(summary.parts), len(METRICS), sharey=True)
    for line, part in zip(axes, summary.parts):
        for axis, (metric, name) in zip(line, METRICS.items()):
            for place, (index, row) in enumerate(rows):
                values = row.score(part, metric)
                if values is not None:
                    _dot(axis, place, values, line_style(index)["color"])
            axis.set_title(label_text(f"{part}: {name}"), loc="left")
            axis.set_yticks(range(len(rows)), labels)
            axis.set_ylim(len(rows) - 0.5, -0.5)
            axis.tick_params(axis="y", length=0)
            axis.margins(x=0.08)
    names = [label.get_window_extent(figure.canvas.get_renderer()).width for label in axes[0][0].get_yticklabels()]
    figure.set_figwidth(_PANEL * len(METRICS) + max(names) / figure.dpi + 0.3)
    return figure


def _dot(axis: Axes, place: int, values: Values, colour: str) -> None:
    if values.sd is not None:
        axis.errorbar(values.mean, place, xerr=values.sd, color=colour, capsize=3, linewidth=1.4)
        seeds = list(values.by_seed.values())
        axis.scatter(seeds, [place + 0.24] * len(seeds), s=11, facecolors="none", edgecolors=colour, linewidths=0.8)
    axis.plot(values.mean, place, "o", color=colour, markersize=6)


def _learning(summary: Summary) -> Figure | None:
    curves = [(index, row, _curve(row)) for index, row in _shown(summary)]
    if not any(len(curve) > 1 for _, _, curve in curves):
        return None
    figure, ((axis,),) = new_figure(6.5, 4)
    for index, row, curve in curves:
        updates, losses = list(curve), list(curve.values())
        style = line_style(index)
        means = [values.mean for values in losses]
        marked = 1 + len(updates) // 15  # markers on some of many points
        axis.plot(updates, means, label=label_text(row.title), markersize=3.5, markevery=marked, **style)
        if any(values.sd is not None for values in losses):
            spread = [values.sd or 0 for values in losses]
            low, high = [m - s for m, s in zip(means, spread)], [m + s for m, s in zip(means, spread)]
            axis.fill_between(updates, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axis.set_xlabel("updates")
    axis.set_ylabel("validation loss")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    add_legend(figure, axis)
    return figure


def _curve(row: Row) -> dict[int, Values]:
    """By updates, over the seeds that were validated there."""
    points: dict[int, dict[int, float]] = {}
    for run in row.runs:
        for updates, loss in run.learning_curve or ():
            points.setdefault(updates, {})[run.seed] = loss
    return {updates: Values(by_seed) for updates, by_seed in sorted(points.items())}


def _length(summary: Summary) -> Figure | None:
    wanted = [part for part, lengths in summary.lengths.items() if sum(n >= MIN_SENTENCES for n in lengths.sentences) > 1]
    if not wanted:
        return None
    figure, axes = new_figure(6.5, 3.2 * len(wanted), len(wanted))
    for (axis,), part in zip(axes, wanted):
        _length_axis(axis, summary, part)
    add_legend(figure, axes[0][0])
    return figure


def _length_axis(axis: Axes, summary: Summary, part: str) -> None:
    lengths, rows = summary.lengths[part], _shown(summary)
    places = [i for i in lengths.shown if lengths.sentences[i] >= MIN_SENTENCES]
    for nth, (index, row) in enumerate(rows):
        found = [(place, values) for place, i in enumerate(places) if (values := lengths.rows[row.name][i]) is not None]
        shift = min(0.03, 0.4 / len(rows)) * (nth - (len(rows) - 1) / 2) if _spreads(value for _, value in found) else 0
        x, y = [place + shift for place, _ in found], [values.mean for _, values in found]
        axis.plot(x, y, markersize=5, label=label_text(row.title), **line_style(index))
        if _spreads(value for _, value in found):
            errors = [values.sd or 0 for _, values in found]
            axis.errorbar(x, y, yerr=errors, fmt="none", color=line_style(index)["color"], capsize=2.5, linewidth=1)
    axis.set_xticks(range(len(places)), [f"{lengths.names[i]}\nn = {lengths.sentences[i]:,}" for i in places])
    axis.set_title(label_text(part), loc="left")
    axis.set_xlabel("source words")
    axis.set_ylabel("BLEU")


def _spreads(values: Sequence[Values] | Any) -> bool:
    return any(value.sd is not None for value in values)

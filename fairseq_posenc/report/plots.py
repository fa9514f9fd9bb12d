"""The plots of a report: scores, learning curves, BLEU by source length."""

from __future__ import annotations

import functools
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .sentences import METRICS, bucket_names
from .summary import FEWEST, Row, Summary, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers tell apart, without their yellow
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP*X"

_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "grid.color": "#e4e4e4",
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "svg.hashsalt": "posenc",  # the same file from the same numbers
}


@dataclass(frozen=True)
class Plot:
    svg: str
    png: bytes


def draw(summary: Summary) -> dict[str, Plot]:
    """The plots that have something to show, by name."""
    plots = {"scores": _scores, "learning": _learning, "length": _length}
    found = {name: drawn(name, functools.partial(plot, summary)) for name, plot in plots.items()}
    return {name: plot for name, plot in found.items() if plot is not None}


def drawn(name: str, plot: Callable[[], Figure | None]) -> Plot | None:
    """A figure in our style, or None where there is nothing to show."""
    for logger in ("matplotlib", "PIL"):  # before the import, for fairseq lets the root logger print everything
        logging.getLogger(logger).setLevel(logging.WARNING)
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = plot()
        return None if figure is None else _saved(figure, name)


def _saved(figure: Figure, name: str) -> Plot:
    import matplotlib

    svg, png = io.StringIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": f"posenc {name}"}):  # apart, for one page holds them all
        figure.savefig(svg, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    return Plot("\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n", png.getvalue())


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options).tolist()


def look_of(index: int) -> dict[str, Any]:
    """Of a method, in all plots the same."""
    line = _LINES[index // len(_COLOURS) % len(_LINES)]
    return {"color": _COLOURS[index % len(_COLOURS)], "linestyle": line}


def _shown(summary: Summary) -> list[tuple[int, Row]]:
    return [(i, row) for i, row in enumerate(summary.rows) if row.runs]


def _scores(summary: Summary) -> Figure:
    """Dots, not bars: the axes do not begin at zero."""
    rows = _shown(summary)
    height = len(summary.parts) * (0.9 + 0.3 * len(rows))
    figure, axes = new_figure(8.5, height, len(summary.parts), len(METRICS), sharey=True)
    for line, part in zip(axes, summary.parts):
        for axis, (metric, name) in zip(line, METRICS.items()):
            for place, (index, row) in enumerate(rows):
                values = row.score(part, metric)
                if values is not None:
                    _dot(axis, place, values, look_of(index)["color"])
            axis.set_title(f"{part}: {name}", loc="left")
            axis.set_yticks(range(len(rows)), [row.name for _, row in rows])
            axis.set_ylim(len(rows) - 0.5, -0.5)
            axis.tick_params(axis="y", length=0)
            axis.margins(x=0.08)
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
    figure, ((axis,),) = new_figure(8.5, 4)
    for index, row, curve in curves:
        updates, losses = list(curve), list(curve.values())
        look = look_of(index)
        means = [values.mean for values in losses]
        axis.plot(updates, means, label=row.name, marker="o" if len(updates) < 15 else None, markersize=3.5, **look)
        if any(values.sd is not None for values in losses):
            spread = [values.sd or 0 for values in losses]
            low, high = [m - s for m, s in zip(means, spread)], [m + s for m, s in zip(means, spread)]
            axis.fill_between(updates, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axis.set_xlabel("updates")
    axis.set_ylabel("validation loss")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.legend(loc="outside right upper")
    return figure


def _curve(row: Row) -> dict[int, Values]:
    """By updates, over the seeds that were validated there."""
    points: dict[int, dict[int, float]] = {}
    for run in row.runs:
        for updates, loss in run.get("learning_curve") or ():
            points.setdefault(updates, {})[run["seed"]] = loss
    return {updates: Values(by_seed) for updates, by_seed in sorted(points.items())}


def _length(summary: Summary) -> Figure | None:
    wanted = [part for part, lengths in summary.lengths.items() if sum(n >= FEWEST for n in lengths.sentences) > 1]
    if not wanted:
        return None
    figure, axes = new_figure(8.5, 3.2 * len(wanted), len(wanted))
    for (axis,), part in zip(axes, wanted):
        _length_axis(axis, summary, part)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def _length_axis(axis: Axes, summary: Summary, part: str) -> None:
    lengths, names, rows = summary.lengths[part], bucket_names(), _shown(summary)
    places = [i for i in lengths.shown if lengths.sentences[i] >= FEWEST]
    for nth, (index, row) in enumerate(rows):
        found = [(place, values) for place, i in enumerate(places) if (values := lengths.rows[row.name][i]) is not None]
        shift = min(0.03, 0.4 / len(rows)) * (nth - (len(rows) - 1) / 2) if _spreads(value for _, value in found) else 0
        x, y = [place + shift for place, _ in found], [values.mean for _, values in found]
        axis.plot(x, y, marker=_MARKERS[index % len(_MARKERS)], markersize=5, label=row.name, **look_of(index))
        if _spreads(value for _, value in found):
            errors = [values.sd or 0 for _, values in found]
            axis.errorbar(x, y, yerr=errors, fmt="none", color=look_of(index)["color"], capsize=2.5, linewidth=1)
    axis.set_xticks(range(len(places)), [f"{names[i]}\nn = {lengths.sentences[i]:,}" for i in places])
    axis.set_title(part, loc="left")
    axis.set_xlabel("source words")
    axis.set_ylabel("BLEU")


def _spreads(values: Sequence[Values] | Any) -> bool:
    return any(value.sd is not None for value in values)

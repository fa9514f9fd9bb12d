"""The result of an analysis: a table for the terminal, and files in Markdown and CSV, a plot and arrays."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from ...common.cells import csv_cell, csv_file, markdown_cell, markdown_text
from ...common.files import write_files
from ...plotting.style import add_legend, label_text, line_style, new_figure, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "-"


@dataclass(frozen=True)
class Result:
    """A table of texts and numbers, with its notes, plot and arrays.

    None marks a missing number. A note explains why the number is missing.
    """

    name: str  # file name without suffix
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str]
    plot: Callable[[], Figure | None]
    digits: int = 3
    # head and rows of the CSV file, if they differ from the table
    detail: tuple[Sequence[str], Sequence[Sequence[Any]]] | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)  # file name -> numpy array


def screen(result: Result) -> str:
    """Return title, table and notes as text for the terminal."""
    return f"{result.title}\n\n{_table(result, 'simple')}\n" + _notes(result)


def write(result: Result, folder: Path) -> list[str]:
    """Write NAME.md, NAME.csv, the plot as NAME.svg and NAME.png, and the arrays. Return the file names."""
    plot = render(result.name, result.plot, colours=64)
    picture = f"\n![{result.title}]({result.name}.png)\n" if plot else ""
    files: dict[str, str | bytes] = {
        f"{result.name}.md": f"# {result.title}\n\n{_table(result, 'pipe')}\n{_notes(result)}{picture}",
        f"{result.name}.csv": _csv(result),
    }
    if plot:
        files |= {f"{result.name}.svg": plot.svg, f"{result.name}.png": plot.png}
    files |= {name: _npy(array) for name, array in result.arrays.items()}
    return write_files(folder, files)


def plot_by_distance(
    found: Mapping[str, tuple[float, Sequence[float | None]]], distances: Sequence[str], titles: tuple[str, str], unit: str
) -> Figure:
    """Plot one dot per model, and one line per model with the values by distance. None: too few sentences for a value.

    Args:
        found: title of a model -> value of its dot, and one value per bucket of distances.
        distances: names of the buckets.
        titles: titles of the two panels.
    """
    figure, ((dots, lines),) = new_figure(8.5, 0.8 + max(2.6, 0.3 * len(found)), 1, 2)
    for number, (title, (value, by_bucket)) in enumerate(found.items()):
        style = line_style(number)
        dots.plot(value, number, "o", color=style["color"], markersize=6)
        points = [(place, own) for place, own in enumerate(by_bucket) if own is not None]
        if points:
            lines.plot(*zip(*points), markersize=4, label=label_text(title), **style)
    dots.set(yticks=range(len(found)), yticklabels=map(label_text, found), ylim=(len(found) - 0.5, -0.5))
    dots.set_title(titles[0], loc="left")
    lines.set_title(titles[1], loc="left")
    lines.set(xticks=range(len(distances)), xticklabels=distances, xlabel=unit)
    if lines.get_legend_handles_labels()[0]:
        add_legend(figure, lines)
    return figure


def _table(result: Result, style: str) -> str:
    body = [[_cell(value, result.digits) for value in row] for row in result.rows]
    if style == "pipe":
        body = [list(map(markdown_cell, row)) for row in body]
    texts = [all(isinstance(row[column], str) for row in result.rows) for column in range(len(result.head))]
    align = ["left" if text else "right" for text in texts]
    return tabulate(body, list(result.head), style, colalign=align, disable_numparse=True) + "\n"


def _cell(value: Any, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _notes(result: Result) -> str:
    return "".join(f"* {markdown_text(note)}\n" for note in result.notes)


def _csv(result: Result) -> str:
    """Return the rows as CSV.

    Numbers of type float have six significant digits, so that rounding errors do not change the file. Integers have all digits.
    Missing numbers are empty.
    """
    head, rows = result.detail or (result.head, result.rows)
    body = ([f"{value:.6g}" if isinstance(value, float) else csv_cell(value) for value in row] for row in rows)
    return csv_file([head, *body])


def _npy(array: Any) -> bytes:
    import numpy

    data = io.BytesIO()
    numpy.save(data, array)
    return data.getvalue()

"""Draw panels into figures, without a display."""

from __future__ import annotations

import io
import logging
import os
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import unwritable
from ..core import PositionError
from .panels import Panel, decay_of, meanings, row_of
from .scales import is_constant
from .style import first_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")

#: blue below the middle of the scale, red above the middle. Colour-blind readers can distinguish these colours
_COLOURS, _MASKED, _LINE, _FAINT = "RdBu_r", "#dcdcdc", "#0072B2", "#555555"
_STYLE = {
    "font.family": "DejaVu Sans",  # part of matplotlib, so the figure is equal on all machines
    "font.size": 8,
    "axes.linewidth": 0.5,
    "svg.hashsalt": "posenc",  # equal numbers lead to equal files
    "svg.fonttype": "none",
}
_DRAWN = " *"
_READING = "Rows are queries, columns are keys. All positions have the same content. Grey: the query cannot attend to the key."

#: width and height of a panel in inches, and maximum number of rows of a figure
_PANEL, _MOST_ROWS = (3.1, 3.0), 100

#: sizes in pixels of the atlas, which is one picture of all methods. A matrix has 128 pixels per side. With 32 positions, each
#: position has exactly 4 pixels
_DPI, _SIDE, _PITCH_X, _PITCH_Y, _COLUMNS, _MARGIN, _TOP = 100, 128, 156, 198, 10, 16, 58
#: number of columns that the legend needs. If the last row of the atlas has fewer free columns, the legend has its own row
_LEGEND_COLUMNS = 5


def require_writable(path: Path) -> None:
    """Raise PositionError if the file cannot be written. Call this function before the computation."""
    if path.suffix not in FORMATS:
        raise PositionError(f"--output {path}: unknown format. Expected a file name that ends with {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise PositionError(f"--output {path}: no such folder: {path.parent}. Expected an existing folder. Create it first.")
    if path.is_dir():
        raise PositionError(f"--output {path}: this is a folder. Expected a file name.")
    if not os.access(path.parent, os.W_OK):
        raise PositionError(f"--output {path}: no permission to write to {path.parent}. Choose another folder.")


def save(figure: Figure, path: Path, description: str | None = None) -> None:
    """Write the figure. The ending of the file name determines the format.

    Args:
        description: text for the metadata of a PNG file.

    Raises:
        PositionError: The file cannot be written.
    """
    import matplotlib

    formats: dict[str, dict[str, Any]] = {
        ".png": {"Software": None, "Description": description}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None},
    }  # fmt: skip
    data = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(data, format=path.suffix[1:], metadata=formats[path.suffix])
    try:
        path.write_bytes(data.getvalue())
    except OSError as error:
        raise PositionError(f"--output {unwritable(path, error)}") from None


def draw(panels: Sequence[Panel], curves: bool = False, query: int | None = None) -> Figure:
    """Return a figure with the matrices of all panels in a grid.

    With `curves`, the figure has one row per panel: the matrix, the values of one query, and the mean value by distance.
    """
    return _styled((lambda panels: _curves(panels, query)) if curves else _grid, panels)


def draw_atlas(panels: Sequence[Panel]) -> Figure:
    """Draw all panels in the given order, with the names of their families. Each panel has its own colour scale."""
    return _styled(_atlas, panels)


def write_atlas(panels: Sequence[Panel], path: Path) -> None:
    """Write the atlas. The metadata of a PNG file lists the methods, so that a missing method can be detected."""
    save(draw_atlas(panels), path, " ".join(panel.title for panel in panels))


def methods_of_atlas(path: Path) -> list[str]:
    """Return the names of the methods in the metadata of an atlas. An atlas is one PNG picture of all methods."""
    from PIL import Image

    with Image.open(path) as picture:
        return picture.info.get("Description", "").split()


def _styled(plot: Any, panels: Sequence[Panel]) -> Figure:
    for logger in ("matplotlib", "PIL", "fontTools"):  # fairseq sets the root logger to print all messages
        logging.getLogger(logger).setLevel(logging.WARNING)
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return plot(panels)


def _figure(rows: int, columns: int, panels: Sequence[Panel]) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with axes in rows and columns, and with a note below them."""
    from matplotlib.figure import Figure

    if rows > _MOST_ROWS:
        raise PositionError(f"{len(panels)} panels: too many for one picture. Plot fewer specs, or one head of each.")
    width = columns * _PANEL[0]
    lines = textwrap.wrap(" ".join([_READING, *map(_sentence, meanings(panels))]), int(width * 18))
    below = 0.13 * len(lines) + 0.15
    height = rows * _PANEL[1] + below + 0.1  # 0.1 inch more, because the titles are higher than the space above the matrices
    figure = Figure((width, height), dpi=150, layout="constrained")
    figure.get_layout_engine().set(rect=(0, below / height, 1, 1 - (below + 0.1) / height))
    figure.text(0.08 / width, 0.05 / height, "\n".join(lines), color=_FAINT, fontsize=7)
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _grid(panels: Sequence[Panel]) -> Figure:
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = _figure(rows, columns, panels)
    for axis, panel in zip(first_axes(axes, len(panels)), panels):
        _matrix(figure, axis, panel)
    return figure


def _curves(panels: Sequence[Panel], chosen: int | None) -> Figure:
    figure, axes = _figure(len(panels), 3, panels)
    for (matrix, row, decay), panel in zip(axes, panels):
        _matrix(figure, matrix, panel)
        query, constant = len(panel.values) // 2 if chosen is None else chosen, is_constant(panel.values)
        _line(row, *row_of(panel, query), f"query {query}", "key", query, constant)
        _line(decay, *decay_of(panel), "mean by distance", "key - query", 0, constant)
    return figure


def _matrix(figure: Figure, axis: Axes, panel: Panel) -> None:
    bar = figure.colorbar(_image(axis, panel), ax=axis, fraction=0.046, pad=0.03)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, length=2)
    facts = f"{panel.site}, {panel.quantity}\n" + ", ".join(filter(None, [panel.heads, panel.origin]))
    axis.set_title(panel.title, fontsize=9, loc="left", pad=25)
    note = axis.annotate(facts, (0, 1), (0, 22), "axes fraction", "offset points", va="top", fontsize=7, color=_FAINT)
    note.set_in_layout(False)  # otherwise a long line would widen its column
    axis.set_xlabel("key", fontsize=7)
    axis.set_ylabel("query", fontsize=7)
    axis.tick_params(labelsize=7, length=2)


def _image(axis: Axes, panel: Panel) -> Any:
    import matplotlib
    from matplotlib.colors import ListedColormap

    scale = panel.scale
    steps = [scale.first + (scale.last - scale.first) * step / 255 for step in range(256)]
    colours = ListedColormap(matplotlib.colormaps[_COLOURS](steps))
    axis.set_facecolor(_MASKED)
    return axis.imshow(panel.values.numpy(), cmap=colours, vmin=scale.low, vmax=scale.high, interpolation="nearest")


def _line(axis: Axes, x: Sequence[int], y: Sequence[float], title: str, label: str, mark: int, constant: bool) -> None:
    axis.axvline(mark, color="#cccccc", linewidth=0.8)
    axis.plot(x, y, color=_LINE, linewidth=1.2, marker="o", markersize=2)
    axis.set_title(title, fontsize=8, loc="left")
    axis.set_xlabel(label, fontsize=7)
    axis.tick_params(labelsize=7, length=2)
    axis.grid(color="#eeeeee")
    axis.set_axisbelow(True)
    if constant and y:  # otherwise the axis would show rounding errors
        middle, room = y[0], abs(y[0]) / 2 or 1.0
        axis.set_ylim(middle - room, middle + room)


def _atlas(panels: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = -(-len(panels) // _COLUMNS)
    free = -len(panels) % _COLUMNS  # free places of the last row, used for the legend if possible
    rows += free < _LEGEND_COLUMNS
    width = 2 * _MARGIN + _COLUMNS * _PITCH_X - (_PITCH_X - _SIDE)
    height = _TOP + rows * _PITCH_Y + 8
    figure = Figure((width / _DPI, height / _DPI), dpi=_DPI)

    def at(column: float, row: float, down: float) -> tuple[float, float]:
        return (_MARGIN + column * _PITCH_X) / width, 1 - (_TOP + row * _PITCH_Y + down) / height

    figure.text(*at(0, 0, -30), f"Attention scores of {len(panels)} position encodings", fontsize=13, weight="bold")
    for number, panel in enumerate(panels):
        row, column = divmod(number, _COLUMNS)
        x, y = at(column, row, 54 + _SIDE)
        axis = figure.add_axes((x, y, _SIDE / width, _SIDE / height), xticks=[], yticks=[])
        _image(axis, panel)
        for spine in axis.spines.values():
            spine.set_color("#999999")
        figure.text(*at(column, row, 34), f"{panel.title}{_DRAWN * panel.origin.startswith('drawn')}", fontsize=9)
        quantity = panel.quantity.split(" of position")[0]
        figure.text(*at(column, row, 49), f"{panel.site}, {quantity}", fontsize=7.5, color=_FAINT)
    for row in range(rows):
        line = list(enumerate(panels[row * _COLUMNS : (row + 1) * _COLUMNS]))
        for family, members in groupby(line, key=lambda item: item[1].family):
            columns = [column for column, _ in members]
            (left, y), right = at(columns[0], row, 18), at(columns[-1], row, 0)[0] + _SIDE / width
            figure.add_artist(Line2D([left, right], [y, y], color="#222222", linewidth=1, transform=figure.transFigure))
            figure.text(left, y + 4 / height, family, fontsize=10, weight="bold", color="#222222")
    _legend(figure, panels, at)
    return figure


def _legend(figure: Figure, panels: Sequence[Panel], at: Any) -> None:
    row, column = divmod(len(panels), _COLUMNS)  # first free place
    if _COLUMNS - column < _LEGEND_COLUMNS:
        row, column = row + 1, 0
    text = [
        _READING,
        f"{len(panels[0].values)} positions, first head, first site (encoder, decoder or cross-attention) of the authors.",
        "Each panel has its own colour scale. Blue is negative, white is 0, red is positive.",
        "If all values of a panel have one sign, white is the value closest to 0.",
        "Learned parameters have their initial values. *: the initial values have no effect, so random values are drawn.",
        "Methods with random positions or noise: mean over many draws.",
        *map(_sentence, meanings(panels)),
    ]
    room = (_COLUMNS - column) * _PITCH_X
    lines = [line for sentence in text for line in textwrap.wrap(sentence, int(room / 7))]
    figure.text(*at(column, row, 18), "\n".join(lines), fontsize=9, va="top", linespacing=1.4, color="#222222")

"""Style of all plots: figures, lines, labels and legends. Plots are SVG files for papers and small PNG files for web pages."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: colours of Okabe and Ito without yellow. Colour-blind readers can distinguish these colours
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP*X"

_DPI, _PALETTE = 96, 24  # PNG: dots per inch as in a browser, and number of colours of a plot of lines
_WIDEST = 40  # maximum characters per line of a label
_LONGEST = 26  # maximum entries per column of a legend

_STYLE = {
    "font.family": "sans-serif",  # PNG: DejaVu Sans of matplotlib. SVG: the browser uses the first available font of a list
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
    "svg.hashsalt": "posenc",  # equal numbers lead to equal files
    "svg.fonttype": "none",  # store text as text, so that files are small and text can be searched
}


@dataclass(frozen=True)
class Plot:
    svg: str
    png: bytes


def render(name: str, plot: Callable[[], Figure | None], colours: int = _PALETTE) -> Plot | None:
    """Return a plot in the style of this project, as SVG and PNG. Return None if there is nothing to plot.

    colours: number of colours of the PNG, at most 256. Colour maps need more colours than lines.
    """
    for logger in ("matplotlib", "PIL"):  # before the import, because fairseq sets the root logger to print all messages
        logging.getLogger(logger).setLevel(logging.WARNING)
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = plot()
        return None if figure is None else _saved(figure, name, colours)


def _saved(figure: Figure, name: str, colours: int) -> Plot:
    import matplotlib

    svg, png = io.StringIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": f"posenc {name}"}):  # different ids, because one page can contain several plots
        figure.savefig(svg, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    figure.savefig(png, format="png", dpi=_DPI)
    return Plot("\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n", _with_palette(png, colours))


def _with_palette(png: io.BytesIO, colours: int) -> bytes:
    """Return the picture as PNG with a small palette. The file is about one sixth of the original size.

    The method of maximum coverage keeps the colours of lines. k-means then gives each entry of the palette the mean colour of
    its pixels, so that the grid stays grey.
    """
    from PIL import Image

    small, picture = io.BytesIO(), Image.open(png).convert("RGB")
    picture = picture.quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # needed to measure the size of texts
    return figure, figure.subplots(rows, columns, squeeze=False, **options).tolist()


def new_panels(number: int, most: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with `number` panels, at most `most` per line. Width and height are the size of a panel in inches."""
    columns = min(most, number)
    lines = -(-number // columns)
    figure, axes = new_figure(width * columns, height * lines, lines, columns)
    return figure, first_axes(axes, number)


def first_axes(axes: list[list[Axes]], number: int) -> list[Axes]:
    """Return the first `number` axes of a figure, line by line, and remove the other axes."""
    flat = [axis for line in axes for axis in line]
    for axis in flat[number:]:
        axis.remove()
    return flat[:number]


def line_style(index: int) -> dict[str, Any]:
    """Return colour, line and marker of the method with this index. The first 224 indices have different styles."""
    colours, lines = len(_COLOURS), len(_LINES)
    marker = _MARKERS[(index + index // (colours * lines)) % len(_MARKERS)]
    return {"color": _COLOURS[index % colours], "linestyle": _LINES[index // colours % lines], "marker": marker}


def label_text(name: str) -> str:
    """Return a name as a label. A long name has several lines. Dollar signs are escaped, so that matplotlib prints them."""
    lines = [""]
    for piece in re.findall(rf"[^+, ]{{1,{_WIDEST - 1}}}[+, ]*|[+, ]+", name):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > _WIDEST:
            lines.append("")
        lines[-1] += piece
    return "\n".join(map(str.rstrip, lines)).replace("$", r"\$")


def add_legend(figure: Figure, axis: Axes) -> None:
    """Add a legend on the right. The figure becomes wider, so that panels keep their size and no entry is cut."""
    handles, labels = axis.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    columns = 1 + (len(labels) - 1) // _LONGEST
    legend = figure.legend(handles, labels, loc="outside right upper", ncols=columns, fontsize=8)
    box = legend.get_window_extent(figure.canvas.get_renderer())
    figure.set_size_inches(width + box.width / figure.dpi, max(height, box.height / figure.dpi + 0.3))

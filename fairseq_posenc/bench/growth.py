"""Plot time and memory of one attention module by sequence length."""

from __future__ import annotations

from typing import Any

from ..plotting.style import Plot, add_legend, label_text, line_style, new_figure, render
from . import tables


def draw(results: dict[str, Any]) -> Plot | None:
    """Return the plot, or None if one attention module was measured with fewer than three lengths."""
    return render("growth", lambda: _figure(results["rows"]))


def _figure(measured: list[dict[str, Any]]) -> Any:
    lengths = [key for key in tables.measures(measured) if key.startswith("attention ")]
    rows = [row for row in measured if lengths and row.get(lengths[0])]
    if len(lengths) < 3 or not rows:
        return None
    from matplotlib.ticker import LogLocator

    figure, [panels] = new_figure(7.5, 4, 1, 2)
    words = [int(key.split()[1]) for key in lengths]
    for panel, quantity, title in zip(panels, ("median", "mib"), ("time, ratio to stock", "memory, MiB")):
        for number, row in enumerate(rows):
            values = [row[key][quantity] for key in lengths]
            panel.plot(words, values, label=label_text(row["method"]), markersize=3.5, **line_style(number))
        if quantity == "mib":
            stock = [rows[0][key]["mib"] / rows[0][key]["memory"] for key in lengths]
            panel.plot(words, stock, label="stock", color="black", linestyle=":")
        panel.set(xscale="log", yscale="log", xlabel="words", title=title)
        panel.set_xticks(words, words)
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        panel.yaxis.set_minor_formatter("{x:g}")
    add_legend(figure, panels[1])
    return figure

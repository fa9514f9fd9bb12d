"""Write the files of a benchmark: JSON, CSV, Markdown tables, and a plot. JSON contains every number.

CSV contains every number except the times of operators.

The plot shows time and memory by sentence length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.cells import csv_file
from ..common.files import write_files
from ..core import PositionError
from ..plotting.style import add_legend, label_text, line_style, new_figure, render
from . import tables


def finished(folder: Path, settings: dict[str, Any], name: str = "bench.json") -> list[dict[str, Any]]:
    """Return the rows that an earlier run has written to this folder. Raise PositionError if the settings of that run differ."""
    path = folder / name
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        given, rows = earlier["settings"], [row for row in earlier["rows"] if row["method"] and row["site"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PositionError(f"{path}: not the result of a benchmark ({error!r}). Remove it, or choose another folder.") from None
    different = [f"{key} {given.get(key)} instead of {value}" for key, value in settings.items() if given.get(key) != value]
    if different:
        raise PositionError(
            f"{path}: measured with other settings ({', '.join(different)}). Expected the same settings. "
            "Remove it, or choose another folder."
        )
    return rows


def write(results: dict[str, Any], folder: Path) -> None:
    """Write bench.json, bench.csv and bench.md, and growth.{svg,png} if there is a plot."""
    results = _rounded(results)
    plot = render("growth", lambda: _growth(results["rows"]))
    contents: dict[str, str | bytes] = {
        "bench.json": json_text(results),
        "bench.csv": _csv(results["rows"]),
        "bench.md": "# What positions cost\n\n" + tables.markdown(results) + ("\n![](growth.png)\n" if plot else ""),
    }
    if plot:
        contents.update({"growth.svg": plot.svg, "growth.png": plot.png})
    write_files(folder, contents)


def json_text(results: dict[str, Any]) -> str:
    """Return settings and rows as JSON, with one row per line."""
    head, *rows = (json.dumps(part, separators=(",", ":")) for part in (results["settings"], *results["rows"]))
    body = ",\n".join(rows)
    return f'{{"settings":{head},"rows":[\n{body}\n]}}\n'


def _rounded(value: Any) -> Any:
    """Round floating-point numbers to six significant digits. A measurement has fewer reliable digits."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_rounded, value))
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_peers(results: dict[str, Any], folder: Path) -> None:
    """Write peers.json and peers.csv."""
    results, names = _rounded(results), ("method", "site", "peer", "library")
    write_files(folder, {"peers.json": json_text(results), "peers.csv": _csv(results["rows"], names)})


def _csv(rows: Sequence[dict[str, Any]], names: Sequence[str] = ("method", "site")) -> str:
    lines = (
        [*(row[name] for name in names), measure, quantity, value]
        for row in rows
        for measure in tables.measures([row])
        for quantity, value in row[measure].items()
        if quantity != "operators"
    )
    return csv_file([[*names, "measure", "quantity", "value"], *lines])


def _growth(measured: list[dict[str, Any]]) -> Any:
    """Plot time and memory of one attention module by sequence length.

    Return None if one attention module was measured with fewer than three lengths.
    """
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

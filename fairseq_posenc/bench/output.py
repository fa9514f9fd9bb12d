"""Tables, files and plots of a benchmark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ..contract import PositionError
from ..report.plots import drawn, look_of, new_figure

#: Chen et al. (2021), Table 1: more time than BERT without the method, on TPU v2, for its small and base sizes
PUBLISHED = {
    "shaw": ("+13 % to +24 %", "+33 % to +65 %"),
    "tupe_rel": ("+1 % to +4 %", "+19 % to +27 %"),
    "diet_abs": ("+0 %", "+0 % to +1 %"),
    "diet_rel": ("+0 %", "+0 %"),
}
#: operators of a profile
_SHOWN = 8
_SOURCE = "published: Chen et al. (2021), Table 1, BERT of two sizes on TPU v2; another model on another device"


def markdown(results: dict[str, Any]) -> str:
    """All rows with their ratios, then growth with length, then how it was measured."""
    rows = results["rows"]
    blocks = [_table(rows, _whole_models(rows))]
    lengths = [key for key in _keys(rows) if key.startswith("attention ")]
    if lengths:
        blocks.append("One self-attention, forwards and backwards: time / memory, as ratios to stock's:\n")
        blocks.append(_table([row for row in rows if row.get(lengths[0])], lengths))
    blocks.append("Operations of products of matrices / bytes read and written by all operators, as ratios to stock's:\n")
    blocks.append(_table(rows, [key for key in _keys(rows) if not key.startswith("memory ")], _counts))
    if results["settings"]["profile"]:
        blocks.append("The operators whose time differs most from stock's, in milliseconds of one run (stock's):\n")
        blocks += [f"* {row['method']}, {row['site']}, {key}: {_operators(row[key])}" for row in rows for key in _profiled(row)]
        blocks.append("")
    return "\n".join(blocks) + "\n" + "".join(f"* {note}\n" for note in _notes(results))


def _keys(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, dict)))


def _whole_models(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [key for key in _keys(rows) if not key.startswith("attention ")]


def _profiled(row: dict[str, Any]) -> list[str]:
    """The measurements of a row that have operators."""
    return [key for key in _keys([row]) if "operators" in row[key]]


def _table(rows: Sequence[dict[str, Any]], keys: Sequence[str], cell: Callable | None = None) -> str:
    whole = cell is None and any(key.startswith("training") for key in keys)
    cell = cell or _cell
    head = ["method", "site", *keys, *(["published training", "published inference"] if whole else [])]
    body = []
    for row in rows:
        published = list(PUBLISHED.get(row["method"], ("", ""))) if whole else []
        body.append([row["method"], row["site"], *(cell(key, row.get(key)) for key in keys), *published])
    align = ["left", "left"] + ["right"] * (len(head) - 2)
    return tabulate(body, headers=head, tablefmt="pipe", colalign=align, disable_numparse=True) + "\n"


def _cell(key: str, value: dict[str, float] | None) -> str:
    """A ratio with the middle half of its rounds; of decoding, that of tokens a second; of one attention, memory too."""
    if value is None:
        return ""
    if "median" not in value:
        return f"{value['ratio']:.2f}"
    numbers = [value[name] for name in ("median", "low", "high")]
    if key == "decoding":
        numbers = [1 / numbers[0], 1 / numbers[2], 1 / numbers[1]]
    time = "{:.2f} ({:.2f}-{:.2f})".format(*numbers)
    return f"{time} / {value['memory']:.2f}" if key.startswith("attention ") else time


def _counts(key: str, value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['operations']:.2f} / {value['bytes']:.2f}"


def differences(own: dict[str, float], stock: dict[str, float]) -> dict[str, list[float]]:
    """The operators whose time differs most, with their own and stock's."""
    both = {name: [own.get(name, 0.0), stock.get(name, 0.0)] for name in own.keys() | stock.keys()}
    return dict(sorted(both.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:_SHOWN])


def _operators(value: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('aten::')} {own:.2f} ({stock:.2f})" for name, (own, stock) in value["operators"].items()
    )


def _notes(results: dict[str, Any]) -> list[str]:
    settings = results["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in settings["versions"].items())
    return [
        f"{settings['device']}, {settings['dtype']}, {settings['threads']} thread(s); size {settings['size']}; {versions}",
        f"ratios to stock fairseq's transformer: medians of {settings['rounds']} rounds in turns (middle half of them)",
        f"decoding: tokens a second, beam 4, {settings['steps']} steps, more is faster; memory: of tensors in a training step",
        _SOURCE,
    ]


def finished(folder: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run into this folder; raises PositionError where it measured otherwise."""
    path = folder / "bench.json"
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        given, rows = earlier["settings"], [row for row in earlier["rows"] if row["method"] and row["site"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PositionError(f"{path} is no benchmark's ({error!r}); remove it or choose another folder") from None
    different = [f"{key} {given.get(key)} and {value}" for key, value in settings.items() if given.get(key) != value]
    if different:
        raise PositionError(f"{path} was measured otherwise ({', '.join(different)}); remove it or choose another folder")
    return rows


def write(results: dict[str, Any], folder: Path) -> None:
    """bench.json, bench.csv, bench.md and the plots."""
    figure = drawn("growth", lambda: _growth(results))
    files: dict[str, str | bytes] = {
        "bench.json": json.dumps(results, indent=1) + "\n",
        "bench.csv": _csv(results),
        "bench.md": "# What positions cost\n\n" + markdown(results) + ("\n![](growth.svg)\n" if figure else ""),
    }
    if figure:
        files.update({"growth.svg": figure.svg, "growth.png": figure.png})
    try:
        for name, content in files.items():
            part = folder / f"{name}.part"  # an interruption leaves the earlier file whole
            part.write_bytes(content if isinstance(content, bytes) else content.encode())
            part.replace(folder / name)
    except OSError as error:
        raise PositionError(f"the benchmark cannot be written into {folder}: {error.strerror}") from None


def _csv(results: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "site", "measure", "quantity", "value"])
    for row in results["rows"]:
        for key in _keys([row]):
            for quantity, value in row[key].items():
                if quantity != "operators":
                    writer.writerow([row["method"], row["site"], key, quantity, value])
    return text.getvalue()


def _growth(results: dict[str, Any]) -> Any:
    """Time and memory of one attention by length."""
    lengths = [key for key in _keys(results["rows"]) if key.startswith("attention ")]
    rows = [row for row in results["rows"] if lengths and row.get(lengths[0])]
    if not rows:
        return None
    figure, [panels] = new_figure(9, 4, 1, 2)
    at = [int(key.split()[1]) for key in lengths]
    for panel, quantity, title in zip(panels, ("median", "mib"), ("time, ratio to stock", "memory, MiB")):
        for number, row in enumerate(rows):
            panel.plot(at, [row[key][quantity] for key in lengths], label=row["method"], **look_of(number))
        if quantity == "mib":
            stock = [rows[0][key]["mib"] / rows[0][key]["memory"] for key in lengths]
            panel.plot(at, stock, label="stock", color="black", linestyle=":")
        panel.set(xscale="log", yscale="log", xlabel="words", title=title)
        panel.set_xticks(at, at)
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside right upper", ncols=1 + len(rows) // 20, fontsize=7)
    return figure

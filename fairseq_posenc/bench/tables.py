"""Tables of a benchmark: narrow tables for the terminal, and a complete table in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..common.cells import aligned_table
from .timing import FEWEST_FOR_QUARTILES

#: method -> additional time of training and of inference, compared with BERT without the method, for the sizes small and base.
#: The times were measured on TPU v2. Source: Chen et al. (2021), Table 1
PUBLISHED = {
    "shaw": ("+13 % to +24 %", "+33 % to +65 %"),
    "tupe_rel": ("+1 % to +4 %", "+19 % to +27 %"),
    "diet_abs": ("+0 %", "+0 % to +1 %"),
    "diet_rel": ("+0 %", "+0 %"),
}
_SOURCE = (
    "published: Chen et al. (2021), Table 1, for BERT of two sizes on TPU v2. The model and the device differ from this "
    "benchmark."
)
_NAMES = ("method", "site")


def measures(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, dict)))


def terminal(results: dict[str, Any], width: int) -> str:
    """Return the median ratios of times, and the ratios of training memory, in tables that fit the width of the terminal."""
    rows = results["rows"]
    alone = [key for key in measures(rows) if key.startswith("attention ")]
    whole = [key for key in measures(rows) if key not in alone]
    blocks = [
        "Ratios to stock fairseq (decoding: ratio of tokens per second):\n",
        _narrow(rows, whole, width),
    ]
    if alone:
        serving = [row for row in rows if row.get(alone[0])]
        blocks += [
            "Forward and backward pass of one attention module, as ratios to stock fairseq:\n",
            _narrow(serving, alone, width),
        ]
    return "\n".join(blocks) + "\n" + _listed(_notes(results)[:1]) + "* --output FOLDER writes all numbers\n"


def peers(results: dict[str, Any], width: int) -> str:
    """Return the table of `posenc bench --peers`: for each method, its time divided by the time of the peer."""
    rows, shapes = results["rows"], measures(results["rows"])
    body = [[row["method"], row["peer"], row["library"], *(f"{row[shape]['median']:.2f}" for shape in shapes)] for row in rows]
    first = (
        "Time of the forward and backward pass of one attention module,\n"
        "divided by the time of the peer (below 1: this project is faster):\n\n"
    )
    return first + fitted(["method", "peer", "library", *shapes], body, width, 3) + "\n" + _listed(_notes(results)[:1])


def markdown(results: dict[str, Any]) -> str:
    """Return the tables of ratios, the times of operators if --profile is set, and the settings of the measurement.

    The tables contain times and memory of models, times and memory of one attention module, and operations and bytes.
    """
    rows = results["rows"]
    lengths = [key for key in measures(rows) if key.startswith("attention ")]
    blocks = [_table(rows, [key for key in measures(rows) if key not in lengths])]
    if lengths:
        blocks += [
            "Forward and backward pass of one self-attention module: time / memory, divided by the values of stock fairseq:\n",
            _table([row for row in rows if row.get(lengths[0])], lengths),
        ]
    blocks += [
        "Operations of matrix products / bytes read and written by all operators, divided by the values of stock fairseq:\n",
        _table(rows, [key for key in measures(rows) if not key.startswith("memory ")], _counts),
    ]
    if results["settings"]["profile"]:
        blocks += [
            "Operators whose time differs most from stock fairseq, in milliseconds of one run. The time of stock fairseq is in "
            "parentheses:\n",
            *(f"* {row['method']}, {row['site']}, {key}: {_operators(row[key])}" for row in rows for key in _profiled(row)),
            "",
        ]
    return "\n".join(blocks) + "\n" + _listed([*_notes(results), _SOURCE])


def _narrow(rows: Sequence[dict[str, Any]], keys: Sequence[str], width: int) -> str:
    head = [*_NAMES, *(key.replace(" ", "\n") for key in keys)]
    body = [[row["method"], row["site"], *(_median(key, row.get(key)) for key in keys)] for row in rows]
    return fitted(head, body, width, 2)


def fitted(head: list[str], body: list[list[str]], width: int, names: int) -> str:
    """Return one table, or several tables if it is too wide. Each table begins with the first `names` columns."""
    blocks, shown = [], list(range(names))

    def table(columns: list[int]) -> str:
        rows = [[row[column] for column in columns] for row in body]
        return aligned_table([head[column] for column in columns], rows, "simple", names) + "\n"

    for column in range(names, len(head)):
        if len(shown) > names and max(map(len, table([*shown, column]).splitlines())) > width:
            blocks.append(table(shown))
            shown = list(range(names))
        shown.append(column)
    return "\n".join([*blocks, table(shown)])


def _table(rows: Sequence[dict[str, Any]], keys: Sequence[str], cell: Callable | None = None) -> str:
    whole = cell is None and any(key.startswith("training") for key in keys)
    cell = cell or _cell
    head = [*_NAMES, *keys, *(["published training", "published inference"] if whole else [])]
    body = []
    for row in rows:
        published = list(PUBLISHED.get(row["method"], ("", ""))) if whole else []
        body.append([row["method"], row["site"], *(cell(key, row.get(key)) for key in keys), *published])
    return aligned_table(head, body, names=2) + "\n"


def _median(key: str, value: dict[str, float] | None) -> str:
    if value is None:
        return ""
    if "median" not in value:
        return f"{value['ratio']:.2f}"
    return f"{1 / value['median'] if key == 'decoding' else value['median']:.2f}"


def _cell(key: str, value: dict[str, float] | None) -> str:
    """Return the time divided by the time of stock fairseq, as the median of all rounds, with quartiles.

    For decoding, return the ratio of tokens per second. For one attention module, add the ratio of memory.
    """
    if value is None or "median" not in value:
        return _median(key, value)
    numbers = [value[name] for name in ("median", "low", "high")]
    if key == "decoding":
        numbers = [1 / numbers[0], 1 / numbers[2], 1 / numbers[1]]
    time = "{:.2f} ({:.2f}-{:.2f})".format(*numbers)
    return f"{time} / {value['memory']:.2f}" if key.startswith("attention ") else time


def _counts(key: str, value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['operations']:.2f} / {value['bytes']:.2f}"


def _profiled(row: dict[str, Any]) -> list[str]:
    """Return the names of the measures in this row that contain the times of single operators.

    The option --profile adds the times of operators.
    """
    return [key for key in measures([row]) if "operators" in row[key]]


def _operators(value: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('aten::')} {own:.2f} ({stock:.2f})" for name, (own, stock) in value["operators"].items()
    )


def _notes(results: dict[str, Any]) -> list[str]:
    settings = results["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in settings["versions"].items())
    rounds = settings["rounds"]
    limits = "quartiles" if rounds >= FEWEST_FOR_QUARTILES else "smallest and the largest ratio"
    return [
        f"{settings['device']}, {settings['dtype']}, {settings['threads']} thread(s), size {settings['size']}, {versions}",
        f"ratios: values divided by the values of stock fairseq's transformer, as medians of {rounds} rounds. The {limits} are "
        "in parentheses.",
        f"decoding: ratio of tokens per second with beam 4 and {settings['steps']} steps. A larger ratio is faster.",
        "memory: tensors of a training step.",
    ]


def _listed(notes: Sequence[str]) -> str:
    return "".join(f"* {note}\n" for note in notes)

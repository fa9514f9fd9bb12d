"""posenc report: one table of all runs, from their score.json files and nothing else."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ..contract import PositionError
from .score import FILE

#: what belongs to a method or a run; rows of one table agree in all the rest
_FREE = frozenset({"arch", "method", "signature", "seed", "parameters", "tokens_per_second", "parts", "bleu", "chrf"})
_METRICS = {"bleu": "BLEU", "chrf": "chrF"}
NOT_RUN = "not run"

Record = dict[str, Any]


def load(folder: Path) -> list[Record]:
    """All records below a folder, in the order of their paths."""
    if not folder.is_dir():
        raise PositionError(f"{folder} is no folder of runs")
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob(FILE))]


def label(record: Record) -> str:
    """A method's one name: its spec where both stacks have it, else the spec of every site that has one."""
    method = record["method"]
    if not method:
        return record["arch"]
    if method["encoder"] == method["decoder"] and method["cross"] == "none":
        return method["encoder"]
    return ", ".join(f"{site} {spec}" for site, spec in method.items() if spec != "none")


def fixed(record: Record) -> dict[str, Any]:
    """Everything that must be equal in all rows, flat: 'settings.lr', 'parts.test.decoding.beam', ..."""

    def flatten(prefix: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {prefix: value}
        return {k: v for name, inner in value.items() if name not in _FREE for k, v in flatten(f"{prefix}.{name}".lstrip("."), inner).items()}

    return {**flatten("", record), **flatten("parts", record["parts"])}


def require_comparable(records: list[Record]) -> None:
    """Raises PositionError with all keys in which a row differs from the first; a part that a row lacks is no difference."""
    first = fixed(records[0])
    for record in records[1:]:
        other = fixed(record)
        lacking = tuple(f"parts.{part}." for part in records[0]["parts"].keys() ^ record["parts"].keys())
        keys = [k for k in sorted(first.keys() | other.keys()) if not (lacking and k.startswith(lacking)) and first.get(k) != other.get(k)]
        if keys:
            listed = ", ".join(f"{key} ({first.get(key)} and {other.get(key)})" for key in keys)
            raise PositionError(f"{label(records[0])} and {label(record)} differ in more than method and seed: {listed}")


def rows(records: list[Record], expected: list[str]) -> tuple[list[str], list[list[Any]]]:
    """Header and cells: expected methods first and in their order, each seed a row; then all others by name."""
    parts = list(dict.fromkeys(part for record in records for part in sorted(record["parts"])))
    seeds = len({record["seed"] for record in records}) > 1
    head = ["method", *["seed"] * seeds, *(f"{part} {metric}" for part in parts for metric in _METRICS.values())]
    by_label: dict[str, list[Record]] = {name: [] for name in expected}
    for record in sorted(records, key=lambda record: (label(record), record["seed"])):
        by_label.setdefault(label(record), []).append(record)
    body = []
    for name, runs in by_label.items():
        for record in runs or [None]:
            body.append([name, *([record["seed"] if record else NOT_RUN] * seeds), *_cells(record, parts)])
    return [*head, "parameters", "training tokens/s"], body


def _cells(record: Record | None, parts: list[str]) -> list[str]:
    if record is None:
        return [NOT_RUN] * (len(parts) * len(_METRICS) + 2)
    scores = [f"{record['parts'][part][metric]:.1f}" if part in record["parts"] else NOT_RUN for part in parts for metric in _METRICS]
    return [*scores, f"{record['parameters']:,}", f"{record['tokens_per_second']:,}"]


def notes(records: list[Record]) -> list[str]:
    """What all rows share: data, updates, versions and sacreBLEU's signatures."""
    record = records[0]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    parts = {part: scores for record in records for part, scores in record["parts"].items()}
    sizes = ", ".join(f"{part} {scores['sentences']} sentences" for part, scores in parts.items())
    signatures = dict.fromkeys((f"{name} {scores[f'{metric}_signature']}" for metric, name in _METRICS.items() for scores in parts.values()))
    return [f"data {record['data']}: {sizes}; {record['updates']} updates; {versions}", *signatures]


def render(records: list[Record], expected: list[str]) -> str:
    """The whole report in Markdown."""
    head, body = rows(records, expected)
    align = ["left"] + ["right"] * (len(head) - 1)
    table = tabulate(body, headers=head, tablefmt="pipe", colalign=align, disable_numparse=True)
    return table + "\n\n" + "".join(f"* {note}\n" for note in notes(records))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "One Markdown table of all runs below a folder, made from their score.json files."
    parser.add_argument("runs", type=Path, metavar="RUNS_DIR", help="where the runs are")
    parser.add_argument("--methods", nargs="+", default=[], metavar="SPEC", help="rows that come first, also where they were not run")


def run(args: argparse.Namespace) -> int:
    records = load(args.runs)
    if not records:
        raise PositionError(f"there is no {FILE} below {args.runs}; posenc score writes them")
    require_comparable(records)
    print(render(records, args.methods), end="")
    return 0

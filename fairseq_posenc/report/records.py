"""The score.json files of runs: how they are read, what a row is called, and which of them one table may hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract import SITES, PositionError
from .score import FILE
from .sentences import METRICS

#: what belongs to a method or to one run of it; the rows of a table agree in all the rest
_FREE = frozenset({
    "arch", "method", "signature", "seed", "parameters", "bleu", "chrf", "statistics",
    "tokens_per_second", "training_seconds", "peak_memory", "learning_curve", "device",
    "tie_encoder_layers", "tie_decoder_layers",  # the name of a row says so
})  # fmt: skip
_REQUIRED = {
    "arch": str, "method": dict, "seed": int, "updates": int, "data": str, "versions": dict, "parts": dict,
    "parameters": int, "tokens_per_second": (int, float),
}  # fmt: skip
_REQUIRED_OF_A_PART = {"sentences": int, "bleu": (int, float), "chrf": (int, float), "bleu_signature": str, "chrf_signature": str}

Record = dict[str, Any]  # one score.json


def load(folder: Path) -> list[Record]:
    """All records below a folder, in the order of their paths."""
    if not folder.is_dir():
        raise PositionError(f"{folder} is no folder of runs")
    records: dict[Path, Record] = {path: _read(path) for path in sorted(folder.rglob(FILE))}
    if not records:
        raise PositionError(f"there is no {FILE} below {folder}; posenc score writes them")
    seen: dict[tuple[str, int], Path] = {}
    for path, record in records.items():
        run = label(record), record["seed"]
        if run in seen:
            raise PositionError(f"{seen[run]} and {path} are both {run[0]} with seed {run[1]}; keep one of them")
        seen[run] = path
    return list(records.values())


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PositionError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PositionError(f"{path} is damaged ({error}); remove it and score the run again") from None
    parts = record.get("parts") if isinstance(record, dict) else None
    wrong = _unfit(record, _REQUIRED)
    for name, part in parts.items() if isinstance(parts, dict) else ():
        wrong += [f"parts.{name}.{key}" for key in _unfit(part, _REQUIRED_OF_A_PART)]
    if not wrong and record["method"] and set(record["method"]) != set(SITES):
        wrong = ["method"]
    if wrong:
        raise PositionError(f"{path} was not written by this posenc score ({', '.join(wrong)}); score the run again")
    return record


def _unfit(value: Any, required: dict[str, Any]) -> list[str]:
    return [key for key, kind in required.items() if not isinstance(value, dict) or not isinstance(value.get(key), kind)]


def label(record: Record) -> str:
    """A method's name in a table: its spec where both stacks have the same, else those of all sites that have one; and ties."""
    method, settings = record["method"], record.get("settings") or {}
    tied = [side for side in ("encoder", "decoder") if settings.get(f"tie_{side}_layers")]
    ties = f" (tied {' and '.join(tied)} layers)" if tied else ""
    if not method:
        return record["arch"] + ties
    if method["encoder"] == method["decoder"] and method["cross"] == "none":
        return method["encoder"] + ties
    return ", ".join(f"{site} {spec}" for site, spec in method.items() if spec != "none") + ties


def require_comparable(records: list[Record]) -> None:
    """Raises PositionError with every key in which a row differs from an earlier one; a part that one lacks is no difference."""
    known: dict[str, tuple[Record, dict[str, Any]]] = {}
    for record in records:
        different: dict[str, list[str]] = {}
        scopes = {"": {**record, "parts": {}}, **{part: {"parts": {part: scores}} for part, scores in record["parts"].items()}}
        for scope, content in scopes.items():
            earlier, one = known.setdefault(scope, (record, dict(_settings(content))))
            two = dict(_settings(content))
            keys = [key for key in sorted(one.keys() | two.keys()) if one.get(key) != two.get(key)]
            different.setdefault(label(earlier), []).extend(f"{key} ({one.get(key)} and {two.get(key)})" for key in keys)
        for name, listed in different.items():
            if listed:
                differences = ", ".join(listed)
                raise PositionError(f"{name} and {label(record)} differ in more than method and seed: {differences}")


def _settings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All that must be equal, flat: 'settings.lr', 'parts.test.decoding.beam' ..."""
    if not isinstance(value, dict):
        yield ".".join(path), value
        return
    for name, inner in value.items():
        if name not in _FREE:
            yield from _settings(inner, (*path, name))


@dataclass(frozen=True)
class Published:
    """Figures of another work, by the name of a row; they stand beside ours and enter no computation."""

    source: str
    metric: str
    part: str
    figures: dict[str, float]


def published(path: Path) -> Published:
    form = 'it needs "source", "metric" (bleu or chrf), "part", and "figures", numbers by the spec of a method'
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PositionError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PositionError(f"{path} is not JSON ({error}); {form}") from None
    kinds = {"source": str, "metric": str, "part": str, "figures": dict}
    if _unfit(content, kinds) or content["metric"] not in METRICS or _not_numbers(content["figures"]):
        raise PositionError(f"{path} holds no published figures; {form}")
    return Published(**{key: content[key] for key in kinds})


def _not_numbers(figures: dict[str, Any]) -> list[str]:
    return [name for name, figure in figures.items() if isinstance(figure, bool) or not isinstance(figure, (int, float))]

"""The score.json files of runs: how they are found, what a row is called, and which of them one table may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...common.messages import join, shorten
from ...core import PositionError
from ...registry.architectures import COMPLEX_MODEL
from ..scoring.record import FILE, Record

#: what belongs to a method or to one run of it; the rows of a table agree in all the rest
_MAY_DIFFER = frozenset({
    "arch", "method", "signature", "seed", "parameters", "bleu", "chrf", "statistics", "lengths",
    "tokens_per_second", "training_seconds", "peak_memory", "learning_curve", "device", "commit",
    # the name of a row says so
    "tie_encoder_layers", "tie_decoder_layers", "encoder_halting", "decoder_halting", "random_structure",
    "task", "relations", "order_source",  # of methods that read more than words
})  # fmt: skip


def load(folder: Path) -> list[Record]:
    """All records below a folder, in the order of their paths."""
    if not folder.is_dir():
        raise PositionError(f"{folder}: no such folder. Expected a folder of scored runs.")
    from ..scoring import archive  # imports numpy

    records = archive.find(folder)
    if not records:
        raise PositionError(f"there is no {FILE} below {folder}; posenc score writes them")
    seen: dict[tuple[Any, int], Path] = {}
    for path, record in records.items():
        run = identity(record), record.seed
        if run in seen:
            both = f"{seen[run]} and {path} are both {shorten(label(record))}"
            raise PositionError(f"{both} with seed {record.seed}; keep one of them")
        seen[run] = path
    return list(records.values())


def label(record: Record) -> str:
    """A method's name in a table: its spec where both stacks have the same, else those of all sites with one; and its model."""
    name = describe(record.method) if record.method else record.arch
    return name + "".join(f" ({trait})" for trait in _traits(record))


def describe(method: Mapping[str, str]) -> str:
    """The specs of all sites in short."""
    if method["encoder"] == method["decoder"] and method["cross"] == "none":
        return method["encoder"]
    return ", ".join(f"{site} {spec}" for site, spec in method.items() if spec != "none")


def identity(record: Record) -> tuple[Any, ...]:
    """What the runs of one row have in common: all options, however they were given."""
    named = record.signature or record.method or {"arch": record.arch}
    return tuple(sorted(named.items())), tuple(_traits(record)), _random(record)


def _traits(record: Record) -> Iterator[str]:
    """What a model is beside its methods."""
    if record.arch.startswith(COMPLEX_MODEL):
        yield "complex Transformer"
    tied = [side for side in ("encoder", "decoder") if record.settings.get(f"tie_{side}_layers")]
    if tied:
        yield f"tied {' and '.join(tied)} layers"
    for side in _halting(record):
        yield f"{side} halting={record.settings[f'{side}_halting']}, up to {record.settings.get(f'{side}_layers')} layers"
    if _random(record) is not None:
        yield "random structure"
    for name in record.row:
        value = record.settings.get(name)
        yield f"{name}={value[0] if isinstance(value, list) and len(value) == 1 else value}"


def _halting(record: Record) -> list[str]:
    """The sides on which words choose their number of layers."""
    return [side for side in ("encoder", "decoder") if record.settings.get(f"{side}_halting")]


def _random(record: Record) -> Any:
    """The seed of structure that is that of other words, or None."""
    return record.settings.get("random_structure")


def require_comparable(records: list[Record]) -> None:
    """Raise PositionError where a row differs from an earlier one; a part that one lacks is no difference."""
    known: dict[str, tuple[Record, dict[str, Any]]] = {}
    for record in records:
        for name, settings in conditions(record).items():
            earlier, expected = known.setdefault(name, (record, settings))
            keys = [key for key in sorted(expected.keys() | settings.keys()) if expected.get(key) != settings.get(key)]
            if keys:
                values = [f"{shorten(key)} ({_shown(expected.get(key))} and {_shown(settings.get(key))})" for key in keys]
                both = f"{shorten(label(earlier))} and {shorten(label(record))}"
                raise PositionError(f"{both} differ in more than method and seed: {join(values, 4)}")


def conditions(record: Record) -> dict[str, dict[str, Any]]:
    """All in which the rows of a table agree, flat: of the training under "", of every test part under its name.

    Output lengths that were asked for stand apart, as a model that reads none was not asked for any, and the number of layers, as
    halting chooses it.
    """
    content = record.model_dump(mode="json")
    parts = content.pop("parts")
    if stops_early(record):
        del content["updates"]  # which follow from the method and the seed
    layers = {side: content["settings"].pop(f"{side}_layers", None) for side in ("encoder", "decoder")}
    lengths = {part: asked for part, scores in parts.items() if (asked := scores.pop("asked")) is not None}
    for name in record.row:
        content["settings"].pop(name, None)
    others = {(part, name): other["metric"] for part, scores in parts.items() for name, other in scores.pop("others").items()}
    found = {"": content, **{part: {"parts": {part: scores}} for part, scores in parts.items()}}
    found |= {f"{part} lengths": {"parts": {part: {"asked": asked}}} for part, asked in lengths.items()}
    found |= {f"{side} layers": {"settings": {f"{side}_layers": layers[side]}} for side in layers if side not in _halting(record)}
    for side in layers:
        if f"{side}_layers" in record.row:
            found.pop(f"{side} layers", None)
    found |= {f"{part} {name}": {"parts": {part: {name: metric}}} for (part, name), metric in others.items()}
    return {name: dict(_settings(fields)) for name, fields in found.items()}


def stops_early(record: Record) -> bool:
    """Whether the training may end before its last update, where the validation loss does not fall."""
    patience = record.settings.get("patience")
    return isinstance(patience, int) and patience > 0


def _shown(value: Any) -> str:
    return shorten(str(value), 40)


def _settings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All that must be equal, flat: 'settings.lr', 'parts.test.decoding.beam' ..."""
    if not isinstance(value, dict):
        yield ".".join(path), value
        return
    for name, inner in value.items():
        if name not in _MAY_DIFFER:
            yield from _settings(inner, (*path, name))

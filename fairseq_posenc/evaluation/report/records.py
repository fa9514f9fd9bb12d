"""Read score.json files, name their methods, and check that runs can be compared.

Also read files of published scores (--published) and files of scores per seed (--seed-variance).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ...common.files import read_text
from ...common.messages import join, shorten
from ...core import SITES, PositionError
from ...data.side.reorder import ORACLE
from ...registry.architectures import COMPLEX_MODEL
from ...registry.spec import parse
from ..scoring.record import FILE, Record, Text, same_content

#: fields that depend on the method or on the single run. All other fields must be equal in all rows of a table
_MAY_DIFFER = frozenset({
    "arch", "method", "signature", "seed", "parameters", "bleu", "chrf", "statistics", "lengths",
    "tokens_per_second", "training_seconds", "peak_memory", "learning_curve", "device", "commit", "ended",
    # settings that are part of the name of a row
    "tie_encoder_layers", "tie_decoder_layers", "encoder_halting", "decoder_halting", "random_structure",
    *(f"{site}_global_layers" for site in SITES),
    "task", "relations", "order_source", "side_files",  # settings of methods with side inputs
})  # fmt: skip


def load(folders: Sequence[Path]) -> list[Record]:
    """Read all records below the folders. A run that is in two folders is returned once.

    The order is the order of the folders, and within each folder the order of the paths.

    Raises:
        PositionError: A folder does not exist or contains no runs. Two runs in one folder have the same method and seed, and are
            not copies, as in an archive of the folder. Two runs in different folders have the same method and seed, but differ
            in more than speed, memory and device.
    """
    from ..scoring import archive  # imported here, because archive imports numpy

    seen: dict[tuple[Any, int], tuple[Path, Record]] = {}
    taken: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise PositionError(f"{folder}: no such folder. Expected a folder of scored runs.")
        found = archive.find(folder)
        if not found:
            raise PositionError(f"{folder}: no {FILE} below this folder. Expected scored runs. Run posenc score first.")
        own = {path: record for path, record in found.items() if path not in taken}
        for path, record in own.items():
            earlier, known = seen.setdefault((identity(record), record.seed), (path, record))
            archived = not (earlier.exists() and path.exists())  # an archive in the folder contains copies of the runs
            same = same_content(known, record) and archived if earlier in own else same_content(known, record, _SPEED)
            if earlier != path and not same:
                raise PositionError(
                    f"{path}: {name_of(record)}, as in {earlier}. Expected each seed once. Remove one of the two."
                )
        taken |= own.keys()
    return [record for _, record in seen.values()]


#: fields of a record that can change if the same training run is repeated
_SPEED = frozenset({"tokens_per_second", "training_seconds", "peak_memory", "device", "ended"})


def label(record: Record) -> str:
    """Return the name of the row of a run, for example 't5 (tied encoder layers)'.

    The name begins with the spec or with the specs of all sites. For a model of stock fairseq, it begins with the architecture.
    Other properties of the run follow in parentheses.
    """
    name = describe(record.method) if record.method else record.arch
    return name + "".join(f" ({trait})" for trait in traits(record))


def unfinished_runs(records: Sequence[Record]) -> str:
    """Return the names of the runs that did not end, with their numbers of updates, or "" if all runs have ended."""
    return join([f"{name_of(run)} ({run.updates} updates)" for run in records if run.unfinished], 8)


def diverged_runs(records: Sequence[Record]) -> str:
    """Return the names of the runs with a validation loss that is NaN or infinite, or "" if all losses are finite."""
    found = [f"{name_of(run)} (first at update {run.diverged_at})" for run in records if run.diverged_at is not None]
    return join(found, 8)


def name_of(record: Record) -> str:
    """Return the row and the seed of a run."""
    return f"{shorten(label(record))} with seed {record.seed}"


def describe(method: Mapping[str, str]) -> str:
    """Return the specs of all sites as a short text."""
    if method["encoder"] == method["decoder"] and method["cross"] == "none":
        return method["encoder"]
    return ", ".join(f"{site} {spec}" for site, spec in method.items() if spec != "none")


def identity(record: Record) -> tuple[Any, ...]:
    """Return a key that is equal for all runs of one row.

    The key contains the values of all options, so that two notations of the same spec have the same key. A run can be
    from an earlier version that did not have all options. The missing options then get their default values.
    """
    named = {site: _signature(text) for site, text in record.signature.items()} or record.method or {"arch": record.arch}
    return tuple(sorted(named.items())), tuple(traits(record)), _random(record)


@functools.cache
def _signature(text: str) -> str:
    """Return the signature of a spec. The signature contains all options of this version.

    If this version cannot parse the text, return the text unchanged.
    """
    try:
        return parse(text).signature
    except PositionError:
        return text


def read_from_references(record: Record, part: str) -> set[str]:
    """Return what a run read from the references of a test set: {"length"}, {"order"}, both, or an empty set.

    Runs with different sets have different inputs, so their scores are not compared.
    """
    found = {"order"} if record.settings.get("order_source") == ORACLE else set()
    asked = record.parts[part].asked if part in record.parts else None
    return found | ({"length"} if asked is not None and asked.source == "reference" else set())


def traits(record: Record) -> Iterator[str]:
    """Yield the properties of a run that are part of the name of its row, in addition to its specs."""
    if record.arch.startswith(COMPLEX_MODEL):
        yield "complex Transformer"
    tied = [side for side in ("encoder", "decoder") if record.settings.get(f"tie_{side}_layers")]
    if tied:
        yield f"tied {' and '.join(tied)} layers"
    for site in SITES:
        layers = record.settings.get(f"{site}_global_layers")
        if layers:
            yield f"{site} global layers={layers}"
    for side in _halting(record):
        yield f"{side} halting={record.settings[f'{side}_halting']}, up to {record.settings.get(f'{side}_layers')} layers"
    if _random(record):
        yield "random structure"
    for name in record.row:
        value = record.settings.get(name)
        yield f"{name}={value[0] if isinstance(value, list) and len(value) == 1 else value}"


def _halting(record: Record) -> list[str]:
    """Return the stacks with adaptive computation time, in which the number of steps depends on the token."""
    return [side for side in ("encoder", "decoder") if record.settings.get(f"{side}_halting")]


def _random(record: Record) -> bool:
    """Return whether the run used --random-structure. Seeds of one row may have different random structures."""
    return record.settings.get("random_structure") is not None


def require_comparable(records: list[Record]) -> None:
    """Raise PositionError if the conditions of two runs differ. A test set that only one run has is not a difference."""
    known: dict[str, tuple[Record, dict[str, Any]]] = {}
    for record in records:
        for name, settings in conditions(record).items():
            earlier, expected = known.setdefault(name, (record, settings))
            if keys := differing(expected, settings):
                values = [f"{shorten(key)} ({_shown(expected.get(key))} and {_shown(settings.get(key))})" for key in keys]
                both = f"{shorten(label(earlier))} and {shorten(label(record))}"
                is_setting = any(key.startswith("settings.") for key in keys)
                named = ", or name the setting with posenc score --row" if is_setting else ""
                raise PositionError(
                    f"{both} differ in {join(values, 4)}. Expected differences only in method and seed. "
                    f"Compare such runs separately{named}."
                )


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, in alphabetical order. A missing key has the value None."""
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]


def conditions(record: Record) -> dict[str, dict[str, Any]]:
    """Return all conditions that must be equal in the rows of a table, in groups: name of the group -> flat dictionary.

    The group "" contains the conditions of the training. Each test set has a group with its name. Requested output lengths are
    separate groups, because only some models read lengths. Each additional metric is also a separate group.

    The number of layers of each stack is a separate group. A stack with halting (adaptive computation time) does not have this
    group. The maximum number of layers of such a stack is part of the name of the row.
    """
    content = record.model_dump(mode="json")
    parts = content.pop("parts")
    if content.pop("best_checkpoint"):
        content["updates"] = "of the best checkpoint"
    elif record.stops_early:
        del content["updates"]  # the number depends on the method and the seed
    layers = {side: content["settings"].pop(f"{side}_layers", None) for side in ("encoder", "decoder")}
    lengths = {part: asked for part, scores in parts.items() if (asked := scores.pop("asked")) is not None}
    for name in record.row:
        content["settings"].pop(name, None)
    others = {(part, name): other for part, scores in parts.items() for name, other in scores.pop("others").items()}
    # name of the group -> path and content of its conditions
    found: dict[str, tuple[tuple[str, ...], Any]] = {"": ((), content)}
    found |= {part: (("parts", part), scores) for part, scores in parts.items()}
    found |= {_lengths_of(part): (("parts", part, "asked"), asked) for part, asked in lengths.items()}
    named = {*_halting(record), *(side for side in layers if f"{side}_layers" in record.row)}  # part of the name of the row
    found |= {f"{side} layers": (("settings", f"{side}_layers"), layers[side]) for side in layers if side not in named}
    if (origin := record.settings.get("order_source")) is not None:  # other rows may read other reorderings
        found[f"reorderings of {label(record)}"] = (), {"origin of the reorderings": origin}
    if (files := record.settings.get("side_files")) is not None:  # rows of other methods may read other files
        found[f"side files of {label(record)}"] = ("side_files",), {k: v for k, v in files.items() if k != "text"}
    for (part, name), other in others.items():
        kind = {key: other[key] for key in ("metric", "smaller_is_better")}
        found[f"{part} {name}"] = ("parts", part, name), kind
    return {name: dict(_settings(fields, path)) for name, (path, fields) in found.items()}


def _lengths_of(part: str) -> str:
    """Return the name of the group of conditions that contains the requested lengths of a test set."""
    return f"requested lengths of {part}"


def _shown(value: Any) -> str:
    return shorten(str(value), 40)


def _settings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of all settings that must be equal. Names are paths such as 'parts.test.decoding.beam'."""
    if not isinstance(value, dict):
        yield ".".join(path), value
        return
    for name, inner in value.items():
        if name not in _MAY_DIFFER:
            yield from _settings(inner, (*path, name))


# --- scores that are not in the table ---


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Published(_File):
    """A file of published scores (--published), for one test set and one metric."""

    source: Text
    metric: Literal["bleu", "chrf"]
    part: Text
    same_task: bool = False  # whether the runs repeat the data, model and training of the publication
    figures: dict[Text, Annotated[int | float, Field(ge=0, le=100)]]  # name of a row -> score


class SeedScores(_File):
    """A file of scores of other runs (--seed-variance)."""

    source: Text
    scores: dict[Text, dict[Text, list[list[float]]]]  # test set -> metric -> rows. Each row is a list with one score per seed

    @field_validator("scores")
    @classmethod
    def _require_percentages(cls, scores: dict[str, dict[str, list[list[float]]]]) -> dict[str, dict[str, list[list[float]]]]:
        for metric in ("bleu", "chrf"):  # other metrics may be negative
            if not all(0 <= x <= 100 for of_part in scores.values() for row in of_part.get(metric, []) for x in row):
                raise ValueError(f"{metric} is not between 0 and 100")
        return scores


@dataclass(frozen=True)
class SeedVariance:
    """Runs or scores from --seed-variance, which are not shown in the table."""

    source: str = ""
    records: dict[Path, Record] = field(default_factory=dict)  # path of score.json -> run
    scores: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)


_File_ = TypeVar("_File_", bound=_File)
_FORM = 'Expected "source", "metric" (bleu or chrf), "part", and "figures", which are numbers by the spec of a method.'
_SEEDS = 'Expected "source", and "scores": {PART: {METRIC: [[SCORE OF SEED 1, SCORE OF SEED 2, ...], ...]}}.'


def read_published(path: Path) -> Published:
    """Return the published scores of a JSON file. Raise PositionError if the file does not contain published scores."""
    return _read(Published, path, "published figures", _FORM)


def read_seed_variance(path: Path) -> SeedVariance:
    """Return the runs below a folder that have ended, or the scores of a JSON file."""
    from ..scoring import archive  # imported here, because archive imports numpy

    if path.is_dir():
        return SeedVariance(str(path), {file: run for file, run in archive.find(path).items() if not run.unfinished})
    if not path.exists():
        raise PositionError(
            f"--seed-variance {path}: no such file or folder. Expected runs of several seeds, or a file of scores."
        )
    found = _read(SeedScores, path, "scores of seeds", _SEEDS)
    return SeedVariance(found.source, {}, found.scores)


def _read(form: type[_File_], path: Path, what: str, expected: str) -> _File_:
    try:
        return form.model_validate_json(read_text(path))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
    if problem["type"] == "json_invalid":
        raise PositionError(f"{path}: not JSON ({shorten(problem['msg'])}). {expected}")
    raise PositionError(f"{path}: no {what}. {expected}")


def same_task(record: Record, wanted: Mapping[str, Mapping[str, Any]], part: str) -> bool:
    """Return whether a run and a table have equal conditions in training and on one test set.

    `wanted` contains the conditions of the table. Versions of software may differ.
    """
    own = conditions(record)
    lengths = _lengths_of(part)
    names = [name for name in ("", part, lengths, "encoder layers", "decoder layers") if name in wanted and name in own]
    same = all(_without_versions(own[name]) == _without_versions(wanted[name]) for name in names)
    return part in own and same and (lengths not in own or lengths in wanted)


def _without_versions(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not name.startswith("versions.")}

"""`posenc average`: compute the average of the parameters of several checkpoints."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...common.files import replace_file
from ...common.messages import join, shorten
from ...common.option_types import positive
from ...core import PositionError
from .checksum import checksum
from .read import as_position_error, load, positions_of, training_of

_ONE_RUN = "Expected the same model. Use checkpoints of one training run."
#: settings that a resumed training run may change: its end, its machines, and when it saves and validates
_MAY_CHANGE = re.compile(
    r"max_(epoch|update)|stop_.*|patience|keep_.*|save_.*|no_.*save.*|no_.*checkpoints|.*validat.*|valid_subset|restore_file|"
    r"finetune_from_model|reset_.*|continue_once|distributed_.*|nprocs_per_node|device_id|batch_size_valid|max_tokens_valid|"
    r"max_valid_steps|best_checkpoint_metric|write_.*"
)
_NAMES = {"epoch": re.compile(r"checkpoint(\d+)\.pt"), "update": re.compile(r"checkpoint_\d+_(\d+)\.pt")}


def newest(folder: Path, number: int, by: str) -> list[Path]:
    """Return the last `number` checkpoints of a training run, from the oldest to the newest."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NAMES[by].fullmatch(path.name))}
    if len(found) < number:
        form = {"epoch": "checkpointEPOCH.pt", "update": "checkpoint_EPOCH_UPDATE.pt"}[by]
        raise PositionError(
            f"{folder}: contains {len(found)} checkpoints with names of the form {form} (--by {by}). Expected at least {number}."
        )
    return [found[key] for key in sorted(found)[-number:]]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the checkpoint with the most updates, without optimizer state. Each parameter is its mean over all checkpoints.

    The sums are computed in double precision. The specs and all integer tensors must be equal in all checkpoints. Print a warning
    if the training runs have different settings.
    """
    sums: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for path in paths:
        state = load(path)
        model = state["model"]
        last = state if not last or _updates(state) >= _updates(last) else last
        if not sums:
            first = model
            seed, settings = _seed(state), _settings(path, state)
        if _seed(state) != seed:
            raise PositionError(f"{path}: seed {_seed(state)}, but {paths[0]} has seed {seed}. {_ONE_RUN}")
        _warn_about_settings(paths[0], settings, path, _settings(path, state))
        _require_same_model(paths[0], first, path, model)
        for name, tensor in _distinct(model).items():
            if tensor.is_floating_point():
                sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    model = last["model"]
    means = {name: (total / len(paths)).to(model[name].dtype) for name, total in sums.items()}
    with as_position_error(paths[-1]):
        whole = for_inference(last)
    return {**whole, "model": _restore_sharing(model, means), "averaged": [path.name for path in paths]}


def _updates(state: dict[str, Any]) -> int:
    """Return the number of updates of a checkpoint, or 0 if it is unknown."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def _seed(state: dict[str, Any]) -> int | None:
    """Return the seed of the training run, or None if it is unknown."""
    return getattr(getattr(state["cfg"], "common", None), "seed", None)


def _settings(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return the data folders, and all settings of the training run that cannot change when it is resumed."""
    with as_position_error(path):
        training = training_of(state)
    found = {name: value for name, value in training.settings.items() if not _MAY_CHANGE.fullmatch(name)}
    return {**found, "data": os.pathsep.join(map(str, training.data))}


def _warn_about_settings(first_path: Path, first: dict[str, Any], path: Path, other: dict[str, Any]) -> None:
    names = [name for name in sorted(first.keys() | other.keys()) if first.get(name) != other.get(name)]
    if names:
        values = [[shorten(str(settings.get(name)), 40) for settings in (other, first)] for name in names]
        found = join([f"{name} ({one} and {two})" for name, (one, two) in zip(names, values)], 4)
        print(
            f"posenc: {path} and {first_path} differ in {found}. Expected checkpoints of one training run. Check the names.",
            file=sys.stderr,
        )


def _require_same_model(first_path: Path, first: dict[str, Any], path: Path, model: dict[str, Any]) -> None:
    positions = [positions_of(state) for state in (first, model)]
    if positions[0] != positions[1]:
        ours, theirs = (
            shorten("; ".join(line for line in lines if line not in other) or "none", 120)
            for lines, other in (positions, positions[::-1])
        )
        raise PositionError(
            f"{path}: positions {theirs}, but {first_path} has {ours}. Expected the same positions. "
            "Use checkpoints of one training run."
        )
    if first.keys() == model.keys() and _distinct(first).keys() != _distinct(model).keys():
        raise PositionError(f"{path}: other shared parameters than in {first_path}. {_ONE_RUN}")
    for name in sorted(first.keys() | model.keys()):
        one, two = first.get(name), model.get(name)
        if one is None or two is None:
            lacking, other = (path, first_path) if two is None else (first_path, path)
            raise PositionError(f"{lacking}: the parameter {name} of {other} is missing. {_ONE_RUN}")
        if one.shape != two.shape or one.dtype != two.dtype:
            shapes = f"{tuple(two.shape)} {two.dtype}, but {tuple(one.shape)} {one.dtype}"
            raise PositionError(f"{path}: {name} is {shapes} in {first_path}. {_ONE_RUN}")
        if not one.is_floating_point() and not one.equal(two):
            raise PositionError(f"{path}: {name} differs from {first_path}, and integers cannot be averaged. {_ONE_RUN}")


def _storage(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _distinct(model: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors without duplicates. If a tensor has several names, only its first name is kept."""
    seen: dict[tuple[Any, ...], str] = {}
    return {name: tensor for name, tensor in model.items() if seen.setdefault(_storage(tensor), name) == name}


def _restore_sharing(model: dict[str, Any], means: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of `model` by name. Replace each floating-point tensor with its average.

    All names of a shared tensor have the same average. Integer tensors are not changed.
    """
    by_storage = {_storage(model[name]): mean for name, mean in means.items()}
    return {name: by_storage.get(_storage(tensor), tensor) for name, tensor in model.items()}


def for_inference(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a checkpoint without optimizer state, and without fairseq's moving average of the parameters.

    The configuration of the copy is a plain dictionary, as in the files that fairseq writes.
    """
    from omegaconf import OmegaConf

    extra = {name: value for name, value in state["extra_state"].items() if not name.startswith("ema")}
    cfg = state["cfg"]
    if OmegaConf.is_config(cfg):
        cfg = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    return {**state, "cfg": cfg, "extra_state": extra, "last_optimizer_state": None}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Average the parameters of several checkpoints of one training run, and write OUT for fairseq-generate."
    parser.add_argument("out", type=Path, metavar="OUT", help="checkpoint to write")
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="CHECKPOINT", help="checkpoints to average. With --last, a folder of checkpoints"
    )
    parser.add_argument(
        "--last",
        type=positive,
        metavar="N",
        help="number of checkpoints to average, counted from the last checkpoint in the folder",
    )
    parser.add_argument("--by", choices=_NAMES, help="with --last: checkpoints of epochs or of updates (default: epoch)")


def run(args: argparse.Namespace) -> int:
    import torch

    paths = _selected(args)
    if args.out.resolve() in [path.resolve() for path in paths]:
        raise PositionError(f"{args.out}: this is one of the checkpoints to read. Expected another name for the result.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise PositionError("posenc average: a checkpoint is given twice. Expected different checkpoints. Give each one once.")
    _require_different(paths)
    state = average(paths)
    replace_file(args.out, lambda partial: torch.save(state, partial))
    print(f"{args.out}: the mean of {', '.join(path.name for path in paths)}")
    return 0


def _require_different(paths: Sequence[Path]) -> None:
    """Raise PositionError if two files are copies, as checkpoint_last.pt often is."""
    seen: dict[str, Path] = {}
    for path in paths:
        content = checksum(path)
        if content is not None and seen.setdefault(content, path) != path:
            raise PositionError(
                f"{path}: a copy of {seen[content]}, which would count twice. Expected different checkpoints. Leave it out."
            )


def _selected(args: argparse.Namespace) -> list[Path]:
    if args.last is None:
        if args.by is not None:
            raise PositionError(f"--by {args.by}: no effect without --last. Expected both. Add --last N, or remove --by.")
        folder = next((path for path in args.inputs if path.is_dir()), None)
        if folder is not None:
            raise PositionError(f"{folder}: this is a folder. Expected checkpoint files, or a folder together with --last N.")
        return args.inputs
    if len(args.inputs) != 1 or not args.inputs[0].is_dir():
        raise PositionError("--last: wrong arguments. Expected one folder of checkpoints.")
    return newest(args.inputs[0], args.last, args.by or "epoch")

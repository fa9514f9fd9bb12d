"""Load checkpoints with torch's safe loader, which is torch.load with weights_only=True.

Only the types that fairseq stores are allowed.
"""

from __future__ import annotations

import argparse
import codecs
import functools
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from fairseq import checkpoint_utils

from ... import registry
from ...common.files import unreadable
from ...core import SITES, PositionError
from ..checkpoints.bounds import problem_of_archive, problem_of_state
from ..generation.options import DECODING
from .errors import first_line
from .wrappers import wrapper

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LONGEST_TEXT = 100_000  # maximum number of characters of the specs of all sites


def _numpy_rebuilders() -> list:
    """Return the two functions with which pickle rebuilds numpy values.

    The result contains each function twice: with its name in numpy 1, and with its name in numpy 2. The safe loader compares
    these names with the name in the file. The name in the file depends on the numpy version that wrote the file.
    """
    rebuilders = []
    for function in (numpy.float64().__reduce__()[0], numpy.empty(0).__reduce__()[0]):  # scalar and _reconstruct
        for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            alias = functools.partial(function)
            alias.__module__, alias.__name__, alias.__qualname__ = module, function.__name__, function.__name__
            rebuilders.append(alias)
    return rebuilders


def allow_checkpoint_types() -> None:
    """Allow more types in checkpoints: the Namespace of the options, and numpy values, which --eval-bleu stores in meters.

    By default, the safe loader reads only tensors and plain containers.
    """
    numbers = [type(numpy.dtype(name)) for name in ("bool", "int32", "int64", "float32", "float64")]
    arrays = [numpy.ndarray, numpy.dtype, *numbers, *_numpy_rebuilders(), codecs.encode]  # codecs.encode rebuilds bytes
    torch.serialization.add_safe_globals([argparse.Namespace, *arrays])


@wrapper
def with_safe_loader(load, path, *args, **kwargs):
    """Wrap fairseq's `load(path, ...)`, so that it uses the safe loader.

    fairseq 0.12 uses the safe loader only with torch 2.6 or later. fairseq's main branch never uses it.
    """
    try:
        with mock.patch.object(torch, "load", functools.partial(_read, path, torch.load)):
            return load(path, *args, **kwargs)
    except OSError as error:
        raise SystemExit(f"fairseq_posenc: {unreadable(path, error)}") from None
    except Exception as error:  # fairseq's conversion of an old configuration raises errors of many types
        reason = f"the configuration cannot be read, {type(error).__name__}: {first_line(error)}"[:300]
        raise SystemExit(_unreadable(path, reason)) from None


def _read(path, torch_load, *args, **kwargs) -> dict:
    """Return the content of a checkpoint.

    Exit with a one-line message if the checkpoint is damaged, contains a type that is not allowed, or uses an unknown method.
    """
    problem = problem_of_archive(Path(path)) if Path(path).is_file() else None
    if problem:
        raise SystemExit(_unreadable(path, problem))
    try:
        state = torch_load(*args, **{**kwargs, "weights_only": True})
    except Exception as error:  # for a damaged file, the loader raises errors of many types
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise SystemExit(
                f"fairseq_posenc: {path}: not loaded, because it contains {refused[1]}, which could run code and which no "
                "checkpoint of fairseq needs. Nothing was executed. Use a checkpoint that you trained yourself."
            ) from None
        reason = first_line(error)
        if "weights_only" in reason:  # torch's message recommends weights_only=False, which would execute code of the file
            reason = "not an archive of torch.save"
        raise SystemExit(_unreadable(path, reason)) from None
    problem = problem_of_state(state) or _problem(state)
    if problem:
        raise SystemExit(_unreadable(path, problem))
    try:
        _require_methods(state["model"])
    except PositionError as error:
        raise SystemExit(f"fairseq_posenc: {path}: cannot be loaded. {str(error)[:1].upper()}{str(error)[1:]}") from None
    _forget_decoding(state)
    return state


def _forget_decoding(state: dict) -> None:
    """Reset the options of decoding that a training run used for --eval-bleu.

    They are for the validation set of the training run, and they may name a file that is missing today. Every command that
    decodes has these options itself. Commands and interfaces without these options decode with the default values.
    """
    task = (state.get("cfg") or {}).get("task")
    options = vars(task) if isinstance(task, argparse.Namespace) else task
    if isinstance(options, dict):
        options.update({name: default for name, default in DECODING.items() if name in options})


def _problem(state: Any) -> str | None:
    """Return the reason why fairseq cannot use this checkpoint, or None."""
    if not (isinstance(state, dict) and "model" in state and ("cfg" in state or "args" in state)):
        return "there is no fairseq model"
    model = state["model"]
    if not isinstance(model, dict) or not all(isinstance(k, str) and torch.is_tensor(v) for k, v in model.items()):
        return "model is not a dictionary of tensors"
    if state.get("cfg") is not None and not isinstance(state["cfg"], dict):
        return "cfg is not a dictionary"
    if state.get("args") is not None and not isinstance(state["args"], argparse.Namespace):
        return "args is not a Namespace"
    if state.get("cfg") is None and state.get("args") is None:
        return "cfg and args are empty"
    if "optimizer_history" in state:  # missing in files of fairseq's first versions
        history = state["optimizer_history"]
        if not isinstance(history, list) or not history or not all(isinstance(entry, dict) for entry in history):
            return "optimizer_history is not a list of dictionaries"
        if type(history[-1].get("num_updates", 0 if "optimizer" in history[-1] else None)) is not int:
            return "optimizer_history has no num_updates"
        if not isinstance(state.get("extra_state"), dict):
            return "extra_state is not a dictionary"
        if not isinstance(state["extra_state"].get("train_iterator", {}), dict):
            return "train_iterator is not a dictionary"
    if "positions_version" in model and not _is_text_of_positions(model["positions_version"]):
        return "positions_version does not contain specs"
    return None


def _is_text_of_positions(value: torch.Tensor) -> bool:
    """Return whether a tensor contains the UTF-8 bytes of lines such as `encoder: rope:base=10000`.

    The first three lines must be the lines of the three sites. Other lines may follow, such as the line of PNAT's predictor.
    """
    if (
        value.dim() != 1
        or value.dtype not in _INTEGERS
        or value.numel() > _LONGEST_TEXT
        or not all(0 <= code < 256 for code in value.tolist())
    ):
        return False
    try:
        lines = bytes(value.tolist()).decode().split("\n")
    except UnicodeDecodeError:
        return False
    return [line.partition(": ")[0] for line in lines[: len(SITES)]] == list(SITES)


def _require_methods(model: dict[str, torch.Tensor]) -> None:
    """Raise PositionError if the checkpoint uses an unknown method."""
    if "positions_version" in model:
        for line in bytes(model["positions_version"].tolist()).decode().splitlines():
            for method in line.partition(": ")[2].split("+"):
                registry.card(method.partition(":")[0].strip())


def _unreadable(path, reason: str) -> str:
    siblings = [p for p in Path(path).parent.glob("checkpoint*.pt") if p.is_file() and p.name != Path(path).name]
    newest = sorted(siblings, key=lambda p: p.stat().st_mtime, reverse=True)[:3]
    others = ", ".join(map(str, newest)) or "checkpoint_best.pt or checkpoint1.pt"
    return (
        f"fairseq_posenc: {path}: damaged, truncated or not a checkpoint ({reason}). Expected a checkpoint of fairseq. "
        f"Use an older checkpoint ({others}), with --restore-file for training or --path for decoding."
    )


def apply() -> None:
    allow_checkpoint_types()
    checkpoint_utils.load_checkpoint_to_cpu = with_safe_loader(checkpoint_utils.load_checkpoint_to_cpu)
    checkpoint_utils.load_ema_from_checkpoint = with_safe_loader(checkpoint_utils.load_ema_from_checkpoint)

"""What fairseq-train printed of a training's course: the validation losses, the seconds in updates, the memory, the device."""

from __future__ import annotations

import json
import re
from typing import Any

from .memory import PEAK_OF_PROCESS

_VALIDATION = re.compile(r"\bepoch \d+ \| valid on '([^']*)' subset \|.*?\bloss ([\d.]+) .*\bnum_updates (\d+)")
_EPOCH = re.compile(r"\btrain\W+epoch 0*(\d+) \|.*\btrain_wall ([\d.]+)")
_JSON = re.compile(r"(\{\"epoch\": .*\})$", re.MULTILINE)
_JSON_LOSS = re.compile(r"(?!train_)(\w+)_num_updates")
_GPU = re.compile(r"\bcapabilities = .*\btotal memory = ([\d.]+) GB ; name = (.*?)\s*$", re.MULTILINE)
_GPU_FREE = re.compile(r"\bgb_free\b\W+([\d.]+)")  # of a simple and of a json log
_PROCESS = re.compile(re.escape(PEAK_OF_PROCESS).replace(re.escape("{:.3f}"), r"([\d.]+)"))


def course(log: str) -> dict[str, Any]:
    """The fields of a score.json; None for what the log does not say.

    A resumed training logs an epoch or a validation again: the later one counts, as it is the one the model comes from.
    """
    gpu = _GPU.search(log)
    return {
        "learning_curve": _learning_curve(log),
        "training_seconds": _training_seconds(log),
        "peak_memory": _peak_memory(log, float(gpu[1]) if gpu else None),
        "device": gpu[2] if gpu else None,
    }


def _json_lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in _JSON.findall(log)]


def _learning_curve(log: str) -> list[list[float]]:
    """[updates, validation loss] in the order of the updates, of the first of several validation sets."""
    found = [(subset, int(updates), float(loss)) for subset, loss, updates in _VALIDATION.findall(log)]
    for line in _json_lines(log):
        subset = next(filter(None, map(_JSON_LOSS.fullmatch, line)), None)
        if subset:
            found.append((subset[1], int(line[subset[0]]), float(line[f"{subset[1]}_loss"])))
    return [list(point) for point in sorted({updates: loss for subset, updates, loss in found if subset == found[0][0]}.items())]


def _training_seconds(log: str) -> float | None:
    """Spent in updates, without validation and saving; fairseq keeps the sum of an unfinished epoch in its checkpoints."""
    epochs = {int(epoch): float(seconds) for epoch, seconds in _EPOCH.findall(log)}
    epochs.update((line["epoch"], float(line["train_train_wall"])) for line in _json_lines(log) if "train_train_wall" in line)
    return sum(epochs.values()) if epochs else None


def _peak_memory(log: str, total: float | None) -> dict[str, Any] | None:
    """Of the GPU at the logged updates, else of the process where memory.py has run it."""
    free, process = _GPU_FREE.findall(log), _PROCESS.findall(log)
    if total is not None and free:
        return {"of": "GPU", "gib": round(total - min(map(float, free)), 1)}
    return {"of": "process", "gib": max(map(float, process))} if process else None

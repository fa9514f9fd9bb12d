"""What fairseq-train printed of a training: its parameters, speed, validation losses, seconds in updates, memory and device."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from .memory import PEAK_OF_PROCESS

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"  # fairseq writes 1234567 as 1.23457e+06
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_INNER = re.compile(r".*\btrain_inner\b.*")
_EPOCH_END = re.compile(r".*\btrain\W+epoch \d+ \|.*|.*\"train_wps\".*")
_TOKENS_PER_SECOND = re.compile(rf"\b(?:train_)?wps\b\W+{_NUMBER}")  # of a simple and of a json log
_VALIDATION = re.compile(rf"\bepoch \d+ \| valid on '([^']*)' subset \|.*?\bloss {_NUMBER} .*\bnum_updates {_NUMBER}")
_EPOCH = re.compile(rf"\btrain\W+epoch 0*(\d+) \|.*\btrain_wall {_NUMBER}")
_JSON = re.compile(r"(\{\"epoch\": .*\})$", re.MULTILINE)
_JSON_LOSS = re.compile(r"(?!train_)(\w+)_num_updates")
_GPU = re.compile(r"\bcapabilities = .*\btotal memory = ([\d.]+) GB ; name = (.*?)\s*$", re.MULTILINE)
_GPU_FREE = re.compile(rf"\bgb_free\b\W+{_NUMBER}")  # of a simple and of a json log
_PROCESS = re.compile(re.escape(PEAK_OF_PROCESS).replace(re.escape("{:.3f}"), _NUMBER))


def parse_training_log(log: str) -> dict[str, Any]:
    """The fields of a score.json that a log holds; None for what it does not say.

    A resumed training logs an epoch or a validation again: the later one counts, as it is the one the model comes from.
    """
    gpu, parameters = _GPU.search(log), _PARAMETERS.search(log)
    return {
        "parameters": int(parameters[1].replace(",", "")) if parameters else None,
        "tokens_per_second": _speed(log),
        "learning_curve": _learning_curve(log),
        "training_seconds": _training_seconds(log),
        "peak_memory": _peak_memory(log, float(gpu[1]) if gpu else None),
        "device": gpu[2] if gpu else None,
    }


def _speed(log: str) -> int | None:
    """The median of the training tokens (of the target) a second; of whole epochs where nothing was logged within them."""
    for lines in (_INNER, _EPOCH_END):  # few updates, and a progress bar, leave the ends of epochs alone
        speeds = [float(number) for number in _TOKENS_PER_SECOND.findall("\n".join(lines.findall(log)))]
        if any(speeds):
            return round(median(speeds))
    return None


def _json_lines(log: str) -> Iterator[dict[str, Any]]:
    for text in _JSON.findall(log):
        try:
            yield json.loads(text)
        except ValueError:  # a training that was killed leaves half a line
            continue


def _learning_curve(log: str) -> list[list[float]]:
    """[updates, validation loss] in the order of the updates, of the first of several validation sets."""
    found = [(subset, int(float(updates)), float(loss)) for subset, loss, updates in _VALIDATION.findall(log)]
    for line in _json_lines(log):
        subset = next(filter(None, map(_JSON_LOSS.fullmatch, line)), None)
        if subset and f"{subset[1]}_loss" in line:
            found.append((subset[1], int(float(line[subset[0]])), float(line[f"{subset[1]}_loss"])))
    kept = {updates: loss for subset, updates, loss in found if subset == found[0][0] and math.isfinite(loss)}
    return [list(point) for point in sorted(kept.items())]


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

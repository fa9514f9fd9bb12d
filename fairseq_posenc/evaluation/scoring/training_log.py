"""Read parameters, speed, validation losses, training time, memory, device and the end of training from fairseq-train's log."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from .memory import PEAK_OF_PROCESS

_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,2})?)"  # fairseq writes 1234567 as 1.23457e+06
_LONGEST_LINE = 20_000  # maximum number of characters of a line. The lines with numbers have a few hundred characters
_PARAMETERS = re.compile(r"num\. shared model params: ([0-9,]{1,24})(?![0-9,])")
#: line of an attempt that starts without updates. fairseq prints this line after the number of parameters
_BEGUN = re.compile(r"\bNo existing checkpoint found |\bLoaded checkpoint .{1,5000} @ 0 updates\)")
#: line of a training run that has ended. The last two lines are from this plugin, if an ended training run is started again
_ENDED = re.compile(r"\bdone training in |\bthe training has (?:stopped early, after|finished before, at update) ")
_TRAINS = re.compile(r"\bbegin training epoch |\bnum_updates\b")
_INNER = re.compile(r"\btrain_inner\b")
_EPOCH_END = re.compile(r"\btrain\W+epoch [0-9]+ \||\"train_wps\"")
_TOKENS_PER_SECOND = re.compile(rf"\b(?:train_)?wps\b\W+{_NUMBER}")  # in a simple log and in a json log
_VALID = re.compile(r"\bepoch [0-9]+ \| valid on '([^']*)' subset \|")
_LOSS = re.compile(rf"\bloss (?:{_NUMBER}|nan|-?inf) ")
_UPDATES = re.compile(rf"\bnum_updates {_NUMBER}")
_EPOCH = re.compile(r"\btrain\W+epoch 0{0,9}([0-9]{1,9}) \|")
_WALL = re.compile(rf"\btrain_wall {_NUMBER}")
_JSON = '{"epoch": '
_JSON_LOSS = re.compile(r"(?!train_)(\w+)_num_updates")
_GPU = re.compile(r"\bcapabilities = [^;]{1,40}; total memory = ([0-9]{1,9}(?:\.[0-9]{1,9})?) GB ; name = (.*)")
_GPU_FREE = re.compile(rf"\bgb_free\b\W+{_NUMBER}")  # in a simple log and in a json log
_PROCESS = re.compile(re.escape(PEAK_OF_PROCESS).replace(re.escape("{:.3f}"), _NUMBER))


def parse_training_log(log: str) -> dict[str, Any]:
    """Return the fields of score.json that a log contains. Missing values are None.

    A log can contain several attempts. Attempts before the last attempt that started without updates do not belong to the model,
    and are left out. If a resumed training run logs an epoch or a validation again, the later value is used, because it belongs
    to the final model.
    """
    lines = _last_run([line for line in log.split("\n") if len(line) <= _LONGEST_LINE])
    gpu, parameters = _first(_GPU, lines), _first(_PARAMETERS, lines)
    return {
        "parameters": int(parameters[1].replace(",", "") or 0) if parameters else None,
        "tokens_per_second": _speed(lines),
        "learning_curve": _learning_curve(lines),
        "training_seconds": _training_seconds(lines),
        "peak_memory": _peak_memory(lines, float(gpu[1]) if gpu else None),
        "device": gpu[2].rstrip() if gpu else None,
        "ended": _ended(lines),
    }


def _last_run(lines: list[str]) -> list[str]:
    """Return the lines of the last attempt that started without updates, and of all attempts that resumed it.

    An attempt begins with its number of parameters. If no attempt started without updates, return all lines.
    """
    begin = start = 0
    for number, line in enumerate(lines):
        if _PARAMETERS.search(line):
            begin = number
        elif _BEGUN.search(line):
            start = begin
    return lines[start:]


def _ended(lines: list[str]) -> bool:
    """Return whether the training run has ended, and no later attempt has continued it."""
    marks = [line for line in lines if _ENDED.search(line) or _TRAINS.search(line)]
    return bool(marks) and _ENDED.search(marks[-1]) is not None


def _first(pattern: re.Pattern[str], lines: list[str]) -> re.Match[str] | None:
    return next(filter(None, map(pattern.search, lines)), None)


def _speed(lines: list[str]) -> int | None:
    """Return the median number of target tokens per second.

    Use the values that fairseq logs within an epoch. If the log contains none of these values, use the values at the ends
    of epochs.
    """
    for kind in (_INNER, _EPOCH_END):  # short epochs and progress bars log values only at the end of an epoch
        speeds = [float(number) for line in lines if kind.search(line) for number in _TOKENS_PER_SECOND.findall(line)]
        if any(speeds):
            return round(median(speeds))
    return None


def _json_lines(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        start = line.find(_JSON)
        if start < 0 or not line.endswith("}"):
            continue
        try:
            yield json.loads(line[start:])
        except (ValueError, RecursionError):  # if a training run is killed, its last line may be incomplete
            continue


def _learning_curve(lines: list[str]) -> list[list[float | None]]:
    """Return a list of [number of updates, validation loss] for the first validation set in the log.

    A loss that is NaN or infinite is None.
    """
    found: list[tuple[str, int, float | None]] = []
    for line in lines:
        subset = _VALID.search(line)
        loss = _LOSS.search(line, subset.end()) if subset else None
        updates = _UPDATES.findall(line, loss.end()) if loss else []
        if subset and loss and updates:
            found.append((subset[1], int(float(updates[-1])), float(loss[1]) if loss[1] else None))
    for fields in _json_lines(lines):
        subset = next(filter(None, map(_JSON_LOSS.fullmatch, fields)), None)
        if subset:
            updates, loss = _number(fields[subset[0]]), _number(fields.get(f"{subset[1]}_loss"))
            if updates is not None and math.isfinite(updates) and loss is not None:
                found.append((subset[1], int(updates), loss if math.isfinite(loss) else None))
    kept = {updates: loss for subset, updates, loss in found if subset == found[0][0]}
    return [list(point) for point in sorted(kept.items())]


def _number(value: Any) -> float | None:
    """Return a field of a json log as a number, which may be NaN or infinite. Return None if the field is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _training_seconds(lines: list[str]) -> float | None:
    """Return the training time in seconds, without validation and saving.

    If an epoch was interrupted, the value in the log after resuming includes the time before the interruption.
    """
    epochs: dict[int, float] = {}
    for line in lines:
        epoch = _EPOCH.search(line)
        walls = _WALL.findall(line, epoch.end()) if epoch else []
        if epoch and walls:
            epochs[int(epoch[1])] = float(walls[-1])
    for fields in _json_lines(lines):
        number, seconds = _number(fields["epoch"]), _number(fields.get("train_train_wall"))
        if number is not None and seconds is not None and math.isfinite(number) and math.isfinite(seconds):
            epochs[int(number)] = seconds
    return sum(epochs.values()) if epochs else None


def _peak_memory(lines: list[str], total: float | None) -> dict[str, Any] | None:
    """Return the peak memory of the GPU at the logged updates, or else the peak memory that memory.py has printed."""
    free, process = ([number for line in lines for number in kind.findall(line)] for kind in (_GPU_FREE, _PROCESS))
    if total is not None and free:
        return {"of": "GPU", "gib": round(total - min(map(float, free)), 1)}
    return {"of": "process", "gib": max(map(float, process))} if process else None

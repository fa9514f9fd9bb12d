"""Options that several commands have, and how numbers are written: Python itself also reads 1_6 and digits of other scripts."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from typing import Any

_WRITTEN = {int: re.compile(r"-?[0-9]+"), float: re.compile(r"-?[0-9]*\.?[0-9]+([eE]-?[0-9]+)?|-?[0-9]+\.")}


def read_number(text: str, kind: type = int) -> int | float:
    """Raises ValueError for what is not written as a number of this kind."""
    if not _WRITTEN[kind].fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return kind(text)


def integer(text: str) -> int:
    """Of options of fairseq-train, whose limits the models check."""
    return read_number(text)


def number(text: str) -> float:
    """The same with a decimal point."""
    return read_number(text, float)


def read_as_written(actions: Iterable[argparse.Action]) -> None:
    """Lets options that fairseq made of a dataclass, with the type int or float, take what is written as a number alone."""
    for action in actions:
        action.type = {int: integer, float: number}.get(action.type, action.type)


def positive(text: str) -> int:
    """Of options that count something."""
    return _at_least(1, text, "a positive whole number")


def not_negative(text: str) -> int:
    """Of seeds, of indices, and of counts that may be zero."""
    return _at_least(0, text, "a whole number from 0")


def _at_least(least: int, text: str, what: str) -> int:
    try:
        read = read_number(text)
    except ValueError:
        read = least - 1
    if read < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return read


def print_json(value: Any) -> None:
    """What `--json` prints: one text, of ASCII alone, so that every terminal and pipe takes it."""
    print(json.dumps(value, indent=2, allow_nan=False))

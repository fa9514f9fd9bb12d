"""Types of command line options. Numbers consist of decimal digits. Python would also read 1_6 and digits of other scripts."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from typing import Any

_WRITTEN = {int: re.compile(r"-?[0-9]+"), float: re.compile(r"-?[0-9]*\.?[0-9]+([eE]-?[0-9]+)?|-?[0-9]+\.")}


def read_number(text: str, kind: type = int) -> int | float:
    """Return the number. Raise ValueError for other text."""
    if not _WRITTEN[kind].fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return kind(text)


def integer(text: str) -> int:
    """Return an integer, for options of fairseq-train. The models check the range."""
    return read_number(text)


def number(text: str) -> float:
    """Return a float, for options of fairseq-train."""
    return read_number(text, float)


def read_as_written(actions: Iterable[argparse.Action]) -> None:
    """Accept only numbers in decimal digits for the options that fairseq created with the type int or float."""
    for action in actions:
        action.type = {int: integer, float: number}.get(action.type, action.type)


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return _at_least(1, text, "a positive whole number")


def not_negative(text: str) -> int:
    """Return a whole number of at least 0, for seeds, indices and counts."""
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
    """Print a value as JSON in ASCII, for the option --json."""
    print(json.dumps(value, indent=2, allow_nan=False))

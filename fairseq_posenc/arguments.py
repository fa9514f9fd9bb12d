"""Options that several commands have, and their types."""

from __future__ import annotations

import argparse
import json
from typing import Any


def positive(text: str) -> int:
    """Of options that count something."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def print_json(value: Any) -> None:
    """What `--json` prints: one text, of ASCII alone, so that every terminal and pipe takes it."""
    print(json.dumps(value, indent=2, allow_nan=False))

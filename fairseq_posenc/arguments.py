"""Types of options that several commands have."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Of options that count something."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)

"""Shorten the parts of messages, so that each message is one readable line."""

from __future__ import annotations

import re
from collections.abc import Sequence


def shorten(text: str, width: int = 60) -> str:
    """Return the text on one line. If the text is longer than `width`, characters in the middle are removed."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    half = (width - 1) // 2
    return line if len(line) <= width else f"{line[: width - 1 - half]}…{line[-half:]}"


def join(items: Sequence[str], shown: int = 3) -> str:
    """Return a text with the first `shown` items, and with the number of further items if there are any."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more


def shorten_words(text: str, width: int = 255) -> str:
    """Return the text with shortened words. A word, such as a path, is shortened if it has more than `width` characters."""
    return re.sub(rf"\S{{{width + 1},}}", lambda word: shorten(word[0], width), text)

"""Parts of messages to users that keep them to one line of readable length."""

from __future__ import annotations

from collections.abc import Sequence


def shorten(text: str, width: int = 60) -> str:
    """The text on one line; a longer one than `width` characters loses its middle."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    half = (width - 1) // 2
    return line if len(line) <= width else f"{line[: width - 1 - half]}…{line[-half:]}"


def join(items: Sequence[str], shown: int = 3, separator: str = ", ") -> str:
    """The first items, and how many more there are."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return separator.join(items[:shown]) + more

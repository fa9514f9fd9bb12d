"""Escape user text in tables, so that spreadsheets and browsers do not execute it."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file: text that a spreadsheet would compute as a formula begins with an apostrophe.

    Numbers stay as they are, also where they are text.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value) and value != "-":
        return f"'{value}"
    return value


def markdown_text(text: str) -> str:
    """Return text for a Markdown file, in which neither HTML tags nor links of the text take effect."""
    return _TAG.sub("&lt;", text).replace("](", "]\\(")


def markdown_cell(text: str) -> str:
    """Return one cell of a Markdown table."""
    return markdown_text(text).replace("|", "\\|")

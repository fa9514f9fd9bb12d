"""Escape user text in tables, so that spreadsheets and browsers do not execute it."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file. Text that a spreadsheet would evaluate as a formula gets a leading apostrophe.

    Numbers are not changed, also if they are given as text.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value) and value != "-":
        return f"'{value}"
    return value


def markdown_text(text: str) -> str:
    """Return text for a Markdown file. HTML tags and links in the text have no effect."""
    return _TAG.sub("&lt;", text).replace("](", "]\\(")


def markdown_cell(text: str) -> str:
    """Return one cell of a Markdown table."""
    return markdown_text(text).replace("|", "\\|")

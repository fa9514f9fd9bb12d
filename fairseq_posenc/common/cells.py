"""Write tables as text. Escape user text in tables, so that spreadsheets and browsers do not execute it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
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


def csv_file(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def aligned_table(head: Sequence[str], body: Sequence[Sequence[str]], form: str = "pipe", names: int = 1) -> str:
    """Return a table in a format of tabulate. The first `names` columns are aligned to the left, the others to the right."""
    from tabulate import tabulate

    align = ["left"] * names + ["right"] * (len(head) - names)
    return tabulate(body, headers=head, tablefmt=form, colalign=align, disable_numparse=True)


def markdown_text(text: str) -> str:
    """Return text for a Markdown file. HTML tags and links in the text have no effect."""
    return _TAG.sub("&lt;", text).replace("](", "]\\(")


def markdown_cell(text: str) -> str:
    """Return one cell of a Markdown table."""
    return markdown_text(text).replace("|", "\\|")

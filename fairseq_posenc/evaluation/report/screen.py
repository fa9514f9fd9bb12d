"""Tables and notes of a report on the screen, no wider than the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...common.messages import shorten
from .formats import markdown
from .tables import Table

_NARROWEST = 40


def terminal_width() -> int | None:
    """None where the output is no terminal: a file or another program takes lines of any length."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def show(tables: Sequence[Table], notes: Sequence[str], width: int | None) -> str:
    """Markdown in which a table that is wider than the screen is several, each with the names of the rows."""
    if width is None:
        return markdown(tables, notes)
    fitting = [part for table in tables for part in _fit(table, width)]
    wrapped = "".join(textwrap.fill(f"* {note}", width, subsequent_indent="  ") + "\n" for note in notes)
    return markdown(fitting, ()) + wrapped


def _fit(table: Table, width: int) -> Iterator[Table]:
    names = [shorten(cells[0], width // 2) for cells in table.body]
    columns: list[int] = []
    for column in range(1, len(table.head)):
        if columns and _width(_select(table, names, [*columns, column])) > width:
            yield _select(table, names, columns)
            columns = []
        columns.append(column)
    yield _select(table, names, columns)


def _select(table: Table, names: list[str], columns: list[int]) -> Table:
    body = [[name, *(cells[column] for column in columns)] for name, cells in zip(names, table.body)]
    return replace(table, head=[table.head[0], *(table.head[column] for column in columns)], body=body)


def _width(table: Table) -> int:
    return max(map(len, markdown([table], ()).splitlines()))

"""Write files of reorderings from word alignments or from the output of a preorderer, and compare files of reorderings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..text import Lines, in_step, require_other_files
from . import orders
from .files import Fault, SideError, parse_order, side_file
from .outputs import Outputs

#: origin of reorderings that were computed from the target sentences
ORACLE = "word alignments with the target (oracle)"


def write_orders(text: Path, given: Path, source: str | None = None) -> str:
    """Write TEXT.order and TEXT.order.source. Return a text with the similarity of the orders to the source order.

    If `source` is set, the file `given` contains orders, and `source` is the name of the preorderer. Otherwise, `given` contains
    word alignments.
    """
    path = side_file(text, "order")
    if not source:  # orders may be read from TEXT.order, because the written orders are equal
        require_other_files([path], [given], "Rename the file of the alignments.")
    found = []
    with Outputs() as outputs:
        with outputs.partial(path).open("w", encoding="utf-8", newline="\n") as file:
            for number, words, line in _pairs(text, given):
                count = len(words.split())
                try:
                    order = parse_order(line, count) if source else orders.order_of_links(orders.parse_links(line, count), count)
                except Fault as fault:
                    raise fault.at(given, number) from None
                file.write(" ".join(map(str, order)) + "\n")
                found.append(order)
        outputs.partial(side_file(path, "source")).write_text((source or ORACLE) + "\n", encoding="utf-8")
    return measures(found)


def compare(given: Path, reference: Path) -> str:
    """Return a text with the similarity of the reorderings in two files."""
    found = []
    for number, line, expected in _pairs(given, reference):
        count = len(expected.split())
        path = reference
        try:
            wanted = parse_order(expected, count)
            path = given
            found.append(orders.relative_to(parse_order(line, count), wanted))
        except Fault as fault:
            raise fault.at(path, number) from None
    return measures(found)


def measures(found: list[list[int]]) -> str:
    """Return a text with the means of Kendall's tau and of the fuzzy reordering score over these orders."""
    if not found:
        return "no sentences"
    tau = sum(map(orders.kendall_tau, found)) / len(found)
    fuzzy = sum(map(orders.fuzzy_reordering_score, found)) / len(found)
    return f"{len(found)} sentences, Kendall's tau {tau:.4f}, fuzzy reordering score {fuzzy:.4f}"


def _pairs(one: Path, other: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (line number from 1, line, line) of two files. Raise SideError if the numbers of lines differ."""
    with contextlib.ExitStack() as stack:
        files = [iter(stack.enter_context(Lines(path))) for path in (one, other)]
        rows = in_step(
            files, lambda counts: SideError("SIDE-LINES", str(other), f"{counts[1]} lines. Expected {counts[0]}, as in {one}.")
        )
        yield from ((number, *row) for number, row in enumerate(rows, 1))

"""List published position encodings with their specs, or with the reason why they are missing. PyTorch is not imported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text
from tabulate import tabulate

from fairseq_posenc import registry
from fairseq_posenc.registry.citations import entries, fields, web_address

#: file of the entries
DATA = Path(__file__).with_name("coverage.json")


def rows() -> list[dict[str, Any]]:
    """Return all entries of the list.

    `method` is the name in the paper, and `code` is the repository with the code. `specs` are the specs that compute the method.
    `reason` says why the method or a part of it is missing. `citation` is a key of references.bib. Without a citation, the fields
    `authors`, `year`, `venue` and `url` describe the paper. `unchecked` lists fields that could not be checked against a source.
    """
    return json.loads(DATA.read_text(encoding="utf-8"))


def page(known: list[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    covered = [row for row in known if row["specs"]]
    missing = [row for row in known if not row["specs"]]
    return _INTRODUCTION.format(
        known=len(known),
        covered=len(covered),
        methods=len(registry.names()),
        available=_table(("method", "paper", "code", "spec", "remark"), covered),
        missing=_table(("method", "paper", "code", "reason"), missing),
    )


_INTRODUCTION = """\
# Coverage of published position encodings

This page lists published position encodings. It is for users who look for the method of a paper. A **spec** is a method of this
project with its options, such as `shaw:max_distance=8`.

The list has {known} entries. This project implements {covered} of these entries. For some of them, a part is missing, and the
column `remark` names this part. The project has {methods} methods. One entry of the list can have several specs. `posenc show
METHOD` prints the equation of a method and its deviations from the paper.

This page is generated from `docs/_ext/posenc_docs/coverage.json`. To add an entry, add a line to this file.

## Available

The column `code` contains the repository of the authors. The mark "(not the authors')" means another implementation. The mark
"(not checked)" means that the content of this repository has not been verified.

{available}

## Not available as a method

The column `reason` explains why a method is not available. Some methods are available in another form, such as a model option.
The column then names this form.


{missing}
"""


def _table(columns: tuple[str, ...], chosen: list[dict[str, Any]]) -> str:
    cells = {
        "method": lambda row: row["method"],
        "paper": _paper,
        "code": lambda row: (row["code"] or "none found") + " (not checked)" * ("code" in row.get("unchecked", ())),
        "spec": lambda row: "<br>".join(f"`{spec}`" for spec in row["specs"]),
        "remark": lambda row: row["reason"],
        "reason": lambda row: row["reason"],
    }
    return tabulate([[cells[column](row) for column in columns] for row in chosen], columns, "github", disable_numparse=True)


def _paper(row: dict[str, Any]) -> str:
    """Return authors, year and venue, with a link if the entry has a DOI or an address."""
    if "citation" in row:
        entry = entries()[row["citation"]]
        found, url = fields(entry), web_address(entry)
        plain = LatexNodes2Text().latex_to_text
        names = [plain(author.partition(",")[0]) for author in re.split(r"\s+and\s+", found["author"])]
        authors = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
        year, venue = found["year"], found.get("booktitle", found.get("journal", ""))
    else:
        authors, year, venue, url = row["authors"], row["year"], row["venue"], row["url"]
    text = ", ".join(filter(None, (authors, f"{venue} {year}".strip())))
    return f"[{text}]({url})" if url else text

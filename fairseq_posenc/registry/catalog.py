"""Generate tables and pages about methods from cards and docstrings. This module does not import torch."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from ..core import Dims, MethodCard, PositionError
from ..core.formula import pretty
from . import lookup
from .citations import bibtex
from .plain_text import plain
from .spec import option_rows, parse

COLUMNS = (
    "method", "family", "reference", "injection", "learnable", "recurring", "unbound", "number", "parameters", "survey", "sites",
    "evidence",
)  # fmt: skip
#: columns of `posenc list` by default. They fit a terminal with 80 characters per line
SHORT = ("method", "family", "reference", "number", "evidence")

#: dictionary size that is assumed for the numbers of parameters in tables
VOCABULARY = 32000
_FLAGS = ("learnable", "recurring", "unbound")
#: value of a card -> explanation on the page of the method
EXTRAPOLATION = {
    "runs": "defined at every length",
    "clips": "distances or positions beyond a limit have the same effect",
    "error": "raises PositionError",
}
EVIDENCE = {
    "peer": "equal to a public implementation in a test",
    "paper": "implemented from the equations of the paper, the authors' code or the survey",
    "reconstruction": "reconstruction, because the exact form of the paper could not be read",
}


@dataclass(frozen=True)
class Description:
    """The docstring of a method: its first paragraph, and a mapping from the name of each section to its text.

    Each bullet of a section is one line.

    Formulas are TeX between dollar signs.
    """

    summary: str
    sections: Mapping[str, str]


def describe(name: str) -> Description:
    """Return the parsed docstring of a method."""
    summary, _, labelled = lookup.declaration(name).docstring.partition("\n\n")
    items = re.split(r"\n(?=\S)", re.sub(r"\n\s+(?!\s|\* )", " ", labelled))  # join lines, except before sections and bullets
    sections = dict(item.split(":", 1) for item in items if ":" in item)
    return Description(
        " ".join(summary.split()), {label: re.sub(r"\n\s+", "\n", text).strip() for label, text in sections.items()}
    )


def number(card: MethodCard, dims: Dims) -> int:
    """Return the number of parameters that position methods have in one stack of `posenc_<name>`.

    Count only the methods at the first site of the card.
    """
    return count(card.specs[card.sites[0]], dims, card.sites[0])


def count(spec: str, dims: Dims, site: str = "encoder") -> int:
    """Return the number of parameters that the methods of this spec have in one stack."""
    total = 0
    for method in parse(spec, site).methods:
        layers = method.options.layers
        own = dims if layers is None else dataclasses.replace(dims, num_layers=len(layers))
        total += lookup.card(method.name).count(method.options, own.at(site))
    return total


def facts(card: MethodCard) -> dict[str, Any]:
    """Return the row of one method in a table like Table 1 of the survey, as a mapping from column to value.

    `sites` contains for each site "authors" (defined by the authors) or "extended" (an extension of this project).
    """
    return {
        "method": card.name,
        "family": lookup.declaration(card.name).family,
        "reference": card.reference,
        "injection": card.injection,
        **{flag: getattr(card, flag) for flag in _FLAGS},
        "parameters": pretty(card.parameters),
        "survey": card.survey_parameters or None,
        "sites": {**dict.fromkeys(card.sites, "authors"), **dict.fromkeys(card.extended_sites, "extended")},
        "evidence": card.evidence,
    }


def rows(dims: Dims, columns: Sequence[str] = COLUMNS, **wanted: Any) -> list[dict[str, Any]]:
    """Return one row for every method whose card has the values `wanted`, such as site="cross" or learnable=True.

    A row contains the given columns.
    """
    unknown = [column for column in columns if column not in COLUMNS]
    if unknown:
        raise PositionError(
            f"column {unknown[0]!r}: unknown. Expected one of {', '.join(COLUMNS)}." + lookup.nearest(unknown[0], list(COLUMNS))
        )
    cards = [card for card in map(lookup.card, lookup.names()) if _agrees(card, wanted)]
    found = [{**facts(card), "number": number(card, dims)} for card in cards]
    return [{column: row[column] for column in columns} for row in found]


def table(found: list[dict[str, Any]], style: str) -> str:
    """Return a table of methods as text, in a format of tabulate or as tab-separated values."""
    if not found:
        return "no method agrees with these filters"
    cells = [{column: _cell(value) for column, value in row.items()} for row in found]
    if style == "tsv":  # numbers without separators and padding, because programs read this format
        return "\n".join("\t".join(map(str, line)) for line in [cells[0], *(row.values() for row in cells)])
    return tabulate(cells, headers="keys", tablefmt=style, intfmt=",")


def _cell(value: Any) -> Any:
    """Convert a value of `facts` to a table cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # sites
        return " ".join(f"({site})" if whose == "extended" else site for site, whose in value.items())
    return "-" if value is None else value


def entry(name: str) -> dict[str, Any]:
    """Return all facts about one method, as a JSON object."""
    card, description = lookup.card(name), describe(name)
    options = [dict(zip(("option", "allowed", "default", "meaning"), values)) for values in option_rows(name)]
    return {
        **facts(card),
        "title": card.title,
        "summary": description.summary,
        "sections": dict(description.sections),
        "extrapolation": card.extrapolation,
        "specs": card.specs,
        "options": options,
        "side_inputs": [{"name": side.name, "axes": side.axes, "of": side.of, "files": side.files} for side in card.side_inputs],
        "citations": card.citations,
        "bibtex": bibtex(card.citations),
    }


def page(name: str) -> str:
    """Return the facts about one method as Markdown, for a terminal."""
    card, description = lookup.card(name), describe(name)
    options = [(f"`{option}`", allowed, default, help) for option, allowed, default, help in option_rows(name)]
    survey = f" (survey: {card.survey_parameters})" if card.survey_parameters else ""
    facts = {
        **{label: plain(text) for label, text in description.sections.items()},
        "Sites": sites(card),
        "Beyond the trained length": EXTRAPOLATION[card.extrapolation],
        "Parameters": f"`{pretty(card.parameters)}`{survey}",
        "Evidence": EVIDENCE[card.evidence],
    }
    listed = "\n".join(_item(label, text.rstrip(".") + ".") for label, text in facts.items())
    choices = tabulate(options, headers=("option", "allowed", "default", "meaning"), tablefmt="github")
    return (
        f"# {card.name}: {card.title}\n\n{plain(description.summary)}\n\n{listed}\n\n{choices}\n\n"
        f"```bibtex\n{bibtex(card.citations)}\n```\n"
    )


def sites(card: MethodCard) -> str:
    """Return a text with the sites for which the authors define the method, and the sites that this project adds."""
    extensions = f". Extensions of this project: {', '.join(card.extended_sites)}" if card.extended_sites else ""
    return ", ".join(card.sites) + extensions


def _item(label: str, text: str) -> str:
    """Return a Markdown list item. If its text consists of bullets, they become a nested list."""
    return f"- {label}: {text}" if not text.startswith("* ") else f"- {label}:\n{textwrap.indent(text, '  ')}"


def _agrees(card: MethodCard, wanted: Mapping[str, Any]) -> bool:
    return all(
        value in card.all_sites if claim == "site" else getattr(card, claim) == value
        for claim, value in wanted.items()
        if value is not None
    )


def cite(names: Sequence[str]) -> str:
    """Return the BibTeX entries of these methods without duplicates."""
    return bibtex(key for name in names for key in lookup.card(name).citations)

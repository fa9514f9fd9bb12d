"""Tables and pages of the methods, generated from their cards and docstrings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from tabulate import tabulate

from . import registry
from .contract import Dims, MethodCard

_FLAGS = ("learnable", "recurring", "unbound")
_MARK = re.compile(r"(?<=<!-- methods: made by posenc docs -->\n).*?(?=<!-- end of methods -->)", re.DOTALL)


def row(card: MethodCard, dims: Dims) -> dict[str, str]:
    """One method in the columns of the survey's Table 1, and what its authors and we define."""
    cls = registry.method_class(card.name)
    count = card.count(cls.Options(), dims, card.all_sites[0])
    ours = [f"({site})" for site in card.our_sites]
    return {
        "method": card.name,
        "reference": card.reference,
        "injection": card.injection,
        **{flag: "yes" if getattr(card, flag) else "no" for flag in _FLAGS},
        "parameters": card.parameters,
        "number": f"{count:,}",
        "survey": card.survey_parameters or "-",
        "sites": " ".join([*card.sites, *ours]),
        "evidence": card.evidence,
    }


def table(dims: Dims, style: str, **wanted: Any) -> str:
    """All methods whose cards agree with `wanted` (a site, a reference point, a flag ...), as a table."""
    rows = [row(card, dims) for card in map(registry.card, registry.names()) if _agrees(card, wanted)]
    return tabulate(rows, headers="keys", tablefmt=style) if rows else "no method agrees with these filters"


def page(name: str, level: str = "#") -> str:
    """All that is known of one method, as Markdown that reads well in a terminal too."""
    card, cls = registry.card(name), registry.method_class(name)
    options = [(f"`{option}`", allowed, default, help) for option, allowed, default, help in registry.option_rows(name)]
    deviations = "".join(f"- {deviation}\n" for deviation in card.deviations) or "- none\n"
    sites = f"{', '.join(card.sites)} (the authors)" + (f"; {', '.join(card.our_sites)} (ours)" if card.our_sites else "")
    return (
        f"{level} {card.name}: {card.title}\n\n{_described(cls)}\n"
        f"- Sites: {sites}. Beyond the trained range it {_BEYOND[card.beyond]}.\n"
        f"- Parameters: {card.parameters}" + (f" (survey: {card.survey_parameters})" if card.survey_parameters else "") + "\n"
        f"- Evidence: {_EVIDENCE[card.evidence]}.\n\n"
        f"Deviations:\n\n{deviations}\n"
        f"{tabulate(options, headers=('option', 'allowed', 'default', 'meaning'), tablefmt='github')}\n\n"
        f"```bibtex\n{card.citation}\n```\n"
    )


def write_docs(readme: Path, pages: Path) -> None:
    """Renews the table in the README and the pages of all methods."""
    dims = Dims(512, 8, 6)
    header = f"{len(registry.names())} methods; number of parameters of one stack at d=512, h=8, L=6, n=1024.\n\n"
    generated = header + table(dims, "github") + "\n"
    readme.write_text(_MARK.sub(lambda _: generated, readme.read_text(encoding="utf-8")), encoding="utf-8")
    intro = "# Methods\n\nMade by `posenc docs` from the cards; edits here are lost. Sites in brackets are our extension.\n\n"
    body = "\n".join(page(name, "##") for name in registry.names())
    pages.write_text(f"{intro}{generated}\n{body}", encoding="utf-8")


def _described(cls: type) -> str:
    """The docstring as a sentence and a list; deviations stand in the card."""
    sentence, _, labelled = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")
    items = re.sub(r"\n\s+", " ", labelled).splitlines()
    return sentence + "\n\n" + "\n".join(f"- {item}" for item in items if not item.startswith("Deviations:"))


_BEYOND = {"runs": "runs on", "clips": "clips: far positions tie", "error": "stops with an error"}
_EVIDENCE = {
    "peer": "equal to a public implementation in a test",
    "paper": "written from the paper's equation",
    "reconstruction": "a reconstruction, the paper's exact form could not be read",
}


def _agrees(card: MethodCard, wanted: dict[str, Any | None]) -> bool:
    for claim, value in wanted.items():
        if value is not None and (value not in card.all_sites if claim == "site" else getattr(card, claim) != value):
            return False
    return True


def cite(names: list[str]) -> str:
    """The BibTeX entries of some methods, each once."""
    return "\n\n".join(dict.fromkeys(registry.card(name).citation for name in names))

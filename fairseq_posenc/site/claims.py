"""What other works say of methods in tables without a measurement, beside what cards and measurements say (no torch)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from .. import registry
from ..common.files import read_text, replace_file
from ..core import Dims
from ..core.formula import pretty
from ..registry import catalog

#: in a checkout: the page, and the benchmark that it reads
PAGE, BENCHMARK = Path("docs/claims.md"), Path("results/bench/amd_epyc_2_cores/bench.csv")

_BASE = Dims(512, 8, 6)
_BERT = Dims(768, 12, 12, 512, 512)
_TINY = Dims(128, 4, 2, 758, 758)
_PROPERTIES = ("inductive", "data-driven", "parameter efficient")
_CONTRADICTION = " ≠"


@dataclass(frozen=True)
class Claim:
    """One row of Antipova and Horban (2024), Table 1."""

    title: str
    method: str
    says: str  # a sign for each property

    def holds(self, measured: Sequence[bool]) -> list[bool]:
        return [(sign == "+") == found for sign, found in zip(self.says, measured)]


CLAIMS = (
    Claim("Sinusoidal PE", "sinusoidal", "+-+"),
    Claim("Absolute PE", "learned", "-+-"),
    Claim("Relative PE", "shaw", "-++"),
    Claim("Combined absolute and relative PE", "tupe_rel", "-++"),
    Claim("Relative scalar approach", "t5", "++-"),
    Claim("Adaptive-T5", "at5", "++-"),
)


def properties(name: str) -> list[bool]:
    """Return whether a method is inductive, data-driven and parameter efficient, by its card and its number of parameters."""
    card = registry.card(name)
    few = catalog.number(card, _BASE) < catalog.number(registry.card("learned"), _BASE)
    return [card.extrapolation != "error", card.learnable, few]


def write(root: Path) -> None:
    """Write the page of a checkout."""
    text = page(read_text(root / BENCHMARK))
    replace_file(root / PAGE, lambda partial: partial.write_text(text, encoding="utf-8"))


def page(benchmark: str) -> str:
    """Return all tables, as Markdown; `benchmark` is the text of a bench.csv."""
    cost = {
        (row["method"], row["measure"], row["quantity"]): float(row["value"])
        for row in csv.DictReader(benchmark.splitlines())
        if row["site"] == "model"
    }
    return "\n".join(("# Claims of other works\n", _INTRODUCTION, _antipova(cost), _huang(), _clipping()))


_INTRODUCTION = """\
Made by `posenc docs` from cards, whose claims are tested in both directions, from their formulas of parameters, and from the
[benchmark](../results/README.md) on two cores; edits here are lost. A ≠ marks where ours contradicts a table.
"""


def _antipova(cost: dict[tuple[str, str, str], float]) -> str:
    head = ["method", *(text for name in _PROPERTIES for text in (f"{name}: theirs", "ours")), "parameters", "time", "memory"]
    numbers = {claim.method: catalog.number(registry.card(claim.method), _BASE) for claim in CLAIMS}
    rows: list[list[str]] = []
    for claim in CLAIMS:
        measured = properties(claim.method)
        signs = ["+-"[not found] + ("" if agrees else _CONTRADICTION) for found, agrees in zip(measured, claim.holds(measured))]
        rows.append(
            [
                f"{claim.title} ({claim.method})",
                *(text for pair in zip(claim.says, signs) for text in pair),
                f"{numbers[claim.method]:,}",
                _ratio(cost.get((claim.method, "training 2x512", "median"))),
                _ratio(cost.get((claim.method, "memory 2x512", "ratio"))),
            ]
        )
    wrong = sum(cell.endswith(_CONTRADICTION) for row in rows for cell in row)
    relative = registry.card("shaw").extrapolation, registry.card("t5").extrapolation
    return f"""\
## Antipova and Horban (2024), Table 1

{_table(head, rows)}

* Inductive: "the capability to handle sequences longer than any encountered during training". Ours: the card's `extrapolation`
  is not `error`.
* Data-driven: "trainable from the data". Ours: the card's `learnable`.
* Parameter efficient: "the number of trainable parameters introduced by the encoding should be limited". Ours: fewer than
  those of learned absolute positions, the first method that they call inefficient; one stack, 512 wide, 8 heads, 6 layers,
  1,024 positions.
* Time and memory: of a training step on 2 sentences of 512 words, over those of stock fairseq with sinusoids.

{wrong} of their 18 signs contradict ours:

* Shaw's positions and T5's both tie far positions (`extrapolation` is {relative[0]} and {relative[1]}), so both are inductive
  or neither is.
* TUPE has {numbers["tupe_rel"]:,} parameters, {numbers["tupe_rel"] / numbers["learned"]:.1f} times the {numbers["learned"]:,}
  of learned absolute positions, of which it has a table as well. They call TUPE efficient and absolute positions not.
* T5 has {numbers["t5"]:,} parameters and adaptive T5 {numbers["at5"]:,}, the fewest here that are learned. They call both
  inefficient, and Shaw's {numbers["shaw"]:,} efficient.

Their text contradicts measurements and itself:

* T5 and adaptive T5 are "considerably slower than the sinusoidal approach and use extra memory and parameters"; the last two
  columns show neither. Adaptive T5 is a reconstruction here.
* Relative positions are said to cost mh(2n-1)d parameters, "12 · 12 · (2 · 512 - 1) = 147K". The product leaves out the factor
  d, as the next table shows.
"""


def _huang() -> str:
    specs = ("learned", "shaw:max_distance=511,values=false,share=none", *(f"huang{number}" for number in range(1, 5)))
    rows = [[spec, f"`{_formula(spec)}`", f"{catalog.count(spec, _BERT):,}"] for spec in specs]
    return f"""\
## Huang et al. (2020), Table 1

Parameters in BERT base: 12 layers, 12 heads, 768 wide, 512 positions. Every layer and head has a table of its own, but for
absolute positions, which are at the input.

{_table(["spec", "parameters", "number"], rows)}

The table of absolute positions has two rows more than there are positions, as fairseq's has. Method 2 has 12 · 12 · (2 · 512 - 1)
parameters, methods 3 and 4 and Shaw's keys {_BERT.head_dim} times as many.
"""


def _clipping() -> str:
    distances = (4, 8, 16, 32, None)
    names = ("huang1", "huang2", "huang3", "huang4", "shaw")

    def spec(name: str, distance: int | None) -> str:
        most = f"shaw:max_distance={_TINY.max_distance}" if name == "shaw" else name  # the one that has no default without limit
        return f"{name}:max_distance={distance}" if distance else most

    rows = [[name, *(f"{catalog.count(spec(name, distance), _TINY):,}" for distance in distances)] for name in names]
    return f"""\
### The same by clipping distance

One stack of the models that `recipes/studies/clipping` trains on captions: 2 layers, 4 heads, 128 wide, 758 positions.

{_table(["method", *(str(distance or "none") for distance in distances)], rows)}
"""


def _formula(spec: str) -> str:
    return pretty(registry.card(spec.partition(":")[0]).parameters)


def _ratio(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    return tabulate(rows, head, tablefmt="pipe", colalign=["left"] + ["right"] * (len(head) - 1), disable_numparse=True)

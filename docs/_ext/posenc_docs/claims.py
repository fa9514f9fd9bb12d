"""Compare tables of other papers with cards, parameter counts and the committed benchmark, without importing PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from fairseq_posenc import registry
from fairseq_posenc.core import Dims
from fairseq_posenc.core.formula import pretty
from fairseq_posenc.registry import catalog

#: path of the benchmark in a checkout
BENCHMARK = Path("results/bench/amd_epyc_2_cores/bench.json")

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
    says: str  # one sign of the paper for each property, + or -

    def holds(self, measured: Sequence[bool]) -> list[bool]:
        """Return for each property whether the sign of the paper agrees with `measured`."""
        return [(sign == "+") == found for sign, found in zip(self.says, measured)]


CLAIMS = (
    Claim("Sinusoidal PE", "sinusoidal", "+-+"),
    Claim("Absolute PE", "learned", "-+-"),
    Claim("Relative PE", "shaw", "-++"),
    Claim("Combined absolute and relative PE", "tupe_rel", "-++"),
    Claim("Relative scalar approach", "t5", "++-"),
    Claim("Adaptive-T5", "soft_t5", "++-"),
)


def properties(name: str) -> list[bool]:
    """Return whether a method is inductive, data-driven and parameter efficient, by its card and its number of parameters."""
    card = registry.card(name)
    few = catalog.number(card, _BASE) < catalog.number(registry.card("learned"), _BASE)
    return [card.extrapolation != "error", card.learnable, few]


def page(benchmark: str) -> str:
    """Return the page as Markdown. `benchmark` is the text of a file bench.json."""
    rows = [row for row in json.loads(benchmark)["rows"] if row["site"] == "model"]
    cost = {row["method"]: {name: value for name, value in row.items() if value is not None} for row in rows}
    return "\n".join(("# Claims of other works\n", _INTRODUCTION, _antipova(cost), _huang(), _clipping()))


_INTRODUCTION = """\
This page compares tables of two papers with this project. It is for readers who have seen one of these tables. The tables of the
papers contain properties and numbers of parameters, but no measurements.

This page is generated, so do not edit it. The values of this project come from three sources:

* the **card** of each method. A card is a list of facts about a method, such as its sites and its number of parameters. Tests
  compare the card with the code.
* a formula on the card, which computes the number of parameters.
* the [benchmark](../results/README.md#benchamd_epyc_2_cores) on two CPU cores.
"""


def _antipova(cost: dict[str, dict[str, Any]]) -> str:
    head = [
        "method",
        *(text for name in _PROPERTIES for text in (f"{name}: paper", "this project")),
        "parameters",
        "time",
        "memory",
    ]
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
                _ratio(cost.get(claim.method, {}).get("training 2x512", {}).get("median")),
                _ratio(cost.get(claim.method, {}).get("memory 2x512", {}).get("ratio")),
            ]
        )
    wrong = sum(cell.endswith(_CONTRADICTION) for row in rows for cell in row)
    relative = {registry.card("shaw").extrapolation, registry.card("t5").extrapolation}
    assert len(relative) == 1
    missing = ", ".join(f"`{claim.method}`" for claim in CLAIMS if claim.method not in cost)
    unmeasured = f" The benchmark does not contain {missing}." if missing else ""
    return f"""\
## Antipova and Horban (2024), Table 1

{_table(head, rows)}

The sign + means that the method has the property, and - means that it does not. The sign ≠ marks a contradiction between the
paper and this project. The columns contain:

* **Inductive.** The paper defines it as "the capability to handle sequences longer than any encountered during training". For
  this project, a method is inductive if it works for sentences of every length. Its card then has an `extrapolation` other than
  `error`.
* **Data-driven.** The paper defines it as "trainable from the data". For this project, a method is data-driven if it has learned
  parameters. This is the field `learnable` on the card.
* **Parameter efficient.** The paper says: "the number of trainable parameters introduced by the encoding should be limited". The
  paper calls learned absolute positions inefficient. For this project, a method is therefore efficient if it has fewer parameters
  than learned absolute positions.
* **Parameters.** The number of parameters of one encoder or decoder with width 512, 8 heads, 6 layers and 1,024 positions.
* **Time and memory.** Training time and training memory, divided by the values of stock fairseq with sinusoidal positions. A
  batch has 2 sentences of 512 words.

{wrong} of the 18 signs of the paper contradict this project:

* In both `shaw` and `t5`, long distances share one table entry. The field `extrapolation` of both cards is
  `{relative.pop()}`. So either both methods are inductive, or neither is. The paper calls `t5` inductive and `shaw` not
  inductive.
* `tupe_rel` has {numbers["tupe_rel"]:,} parameters. `learned` has {numbers["learned"]:,}. The ratio is
  {numbers["tupe_rel"] / numbers["learned"]:.1f}, because `tupe_rel` contains a table of absolute positions and two
  projections. Both the table, and the two projections together, have about as many parameters as `learned`. The paper calls
  `tupe_rel` efficient and `learned` inefficient.
* `t5` has {numbers["t5"]:,} parameters and `soft_t5` has {numbers["soft_t5"]:,}. No other learned method in this table
  has fewer parameters. The paper calls both methods inefficient. It calls `shaw` with {numbers["shaw"]:,} parameters efficient.

Two statements in the text of the paper are also contradicted:

* The paper says that T5 and adaptive T5 are "considerably slower than the sinusoidal approach and use extra memory and
  parameters". The columns of time and memory do not show this.{unmeasured}
* The paper says that relative positions need mh(2n-1)d parameters. m is the number of layers, h the number of
  heads, n the number of positions, and d the width of a head. The paper computes
  "12 · 12 · (2 · 512 - 1) = 147K". This product does not contain the factor d. The next table shows the number with this factor
  (`huang3`, d = 64) and the number without it (`huang2`).
"""


def _huang() -> str:
    specs = ("learned", "shaw:max_distance=511,values=false,share=none", *(f"huang{number}" for number in range(1, 5)))
    rows = [[spec, f"`{_formula(spec)}`", f"{catalog.count(spec, _BERT):,}"] for spec in specs]
    return f"""\
## Huang et al. (2020), Table 1

The table contains the number of position parameters in BERT base (12 layers, 12 heads, width 768, 512 positions). The relative
methods have one table for each layer and each head. `learned` has one table at the input. A **spec** is a
method with its options ([grammar](reference/specs.md)).

The formulas contain these variables: d is the width, d_h the width of a head, n and m are the maximum numbers of queries and
keys, and `tables` is the number of tables. `padding_idx` is the index of the
padding symbol. The other names are options of the method.

{_table(["spec", "formula of this project", "parameters"], rows)}

* The table of `learned` has two more rows than the model has positions, as in fairseq.
* `huang2` has 12 · 12 · (2 · 512 - 1) parameters.
* `huang3`, `huang4` and the keys of `shaw` have {_BERT.head_dim} times as many parameters as `huang2`, because each entry is a
  vector with the width of a head.
"""


def _clipping() -> str:
    distances = (4, 8, 16, 32, None)
    names = ("huang1", "huang2", "huang3", "huang4", "shaw")

    def spec(name: str, distance: int | None) -> str:
        most = f"shaw:max_distance={_TINY.max_distance}" if name == "shaw" else name  # shaw always has a largest distance
        return f"{name}:max_distance={distance}" if distance else most

    rows = [[name, *(f"{catalog.count(spec(name, distance), _TINY):,}" for distance in distances)] for name in names]
    return f"""\
### Parameters by clipping distance

The table contains the number of parameters for several clipping distances. All distances beyond the clipping distance share one
entry. In the column `none`, every distance has its own entry. The numbers are for one encoder or decoder of the models that
`recipes/studies/clipping` trains on captions (2 layers, 4 heads, width 128, 758 positions).

{_table(["method", *(str(distance or "none") for distance in distances)], rows)}
"""


def _formula(spec: str) -> str:
    return pretty(registry.card(spec.partition(":")[0]).parameters)


def _ratio(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    return tabulate(rows, head, tablefmt="pipe", colalign=["left"] + ["right"] * (len(head) - 1), disable_numparse=True)

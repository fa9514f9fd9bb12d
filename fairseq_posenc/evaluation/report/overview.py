"""The results section of README: one table and one picture, from committed runs; none where there are no runs."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ... import registry
from ...common.files import read_text, replace_file
from ...plotting.style import add_legend, label_text, line_style, new_figure, render
from ..scoring.record import FILE
from .chance import Chance
from .records import describe, load, require_comparable
from .rows import Row
from .summary import Summary, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: in a checkout: the runs, a benchmark, and the picture that README shows
RUNS = Path("results/multi30k_en-de/tiny")
BENCHMARK, PICTURE = Path("results/bench/amd_epyc_2_cores/bench.csv"), Path("docs/results.png")
PART, BASELINE, COST = "test_2016_flickr", "sinusoidal", "training 32x32"

_SECTION = re.compile(r"^## Results\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_BEFORE = "## Compare\n"


def write(root: Path) -> None:
    """Renew the section and its picture; README stays as it is where there are no runs."""
    if not any((root / RUNS).rglob(FILE)):
        return
    records = load(root / RUNS)
    require_comparable(records)
    summary = summarise(records, [], None, BASELINE, samples=1, chance=root / "results" / "chance")
    rows = sorted((row for row in summary.rows if row.score(PART, "bleu")), key=lambda row: -row.score(PART, "bleu").mean)
    costs = _costs(read_text(root / BENCHMARK))
    picture = render("overview", lambda: _draw(summary, rows, costs))
    replace_file(root / PICTURE, lambda partial: partial.write_bytes(picture.png))
    text = without(read_text(root / "README.md")).replace(_BEFORE, section(summary, rows, costs) + _BEFORE, 1)
    replace_file(root / "README.md", lambda partial: partial.write_text(text, encoding="utf-8"))


def without(readme: str) -> str:
    """README without the section."""
    return _SECTION.sub("", readme)


def _costs(benchmark: str) -> dict[str, float]:
    """The time of training by row, over that of stock fairseq: the benchmark has a method as in its architecture."""
    rows = csv.DictReader(benchmark.splitlines())
    wanted = {"site": "model", "measure": COST, "quantity": "median"}
    found = {row["method"]: float(row["value"]) for row in rows if wanted.items() <= row.items()}
    return {describe(registry.card(name).specs) if name in registry.names() else name: cost for name, cost in found.items()}


def section(summary: Summary, rows: list[Row], costs: dict[str, float]) -> str:
    head = ["method", "BLEU", f"over {BASELINE}, same seed", "parameters", "time"]
    lines = [f"| {' | '.join(head)} |", "|---|--:|--:|--:|--:|"]
    lines += [f"| {' | '.join(_cells(summary, row, costs))} |" for row in rows]
    settings = rows[0].runs[0].settings
    return (
        "## Results\n\n"
        f"Captions from English to German (Multi30K, test 2016), {settings['encoder_layers']} and "
        f"{settings['decoder_layers']} layers, {settings['encoder_embed_dim']} wide, {settings['max_epoch']} epochs.\n\n"
        + "\n".join(lines)
        + "\n\n"
        + "".join(f"{line}\n" for line in _legend(summary.chance))
        + f"\n![Quality beside cost]({PICTURE})\n\n"
    )


def _legend(chance: Chance | None) -> list[str]:
    lines = [
        "± is the standard deviation over seeds, their number in brackets; time is that of a training step",
        f"over stock fairseq's ({COST.split()[-1].replace('x', ' sentences of ')} words, two cores of a CPU).",
    ]
    margin = chance.margin(PART, "bleu") if chance else None
    if margin is not None:
        lines[-1] += " Trainings of one method"
        lines.append(f"differ by up to {margin:.1f} BLEU by chance; ~ marks what is no more, with as many seeds as there are.")
    return lines


def _cells(summary: Summary, row: Row, costs: dict[str, float]) -> list[str]:
    values = row.score(PART, "bleu")
    spread = "" if values.sd is None else f" ± {values.sd:.1f}"
    difference = summary.differences.get((row.name, PART, "bleu"))
    mark = "~" if summary.is_chance(row.name, PART, "bleu") else ""
    return [
        row.title,
        f"{values.mean:.1f}{spread} ({values.n})",
        f"{difference.values.mean:+.1f}{mark}" if difference else "",
        f"{row.runs[0].parameters:,}",
        f"{costs[row.name]:.2f}" if row.name in costs else "not measured",
    ]


def _draw(summary: Summary, rows: list[Row], costs: dict[str, float]) -> Figure:
    """BLEU over cost; the band is what chance makes of the baseline."""
    figure, ((axis,),) = new_figure(6.5, 4)
    margin = summary.chance.margin(PART, "bleu") if summary.chance else None
    for row in rows:
        values = row.score(PART, "bleu")
        if row.name == BASELINE and margin is not None:
            axis.axhspan(values.mean - margin, values.mean + margin, color="#e8eef4", zorder=0)
        if row.name not in costs:
            continue
        style = {**line_style(summary.rows.index(row)), "linestyle": "none"}
        axis.errorbar(costs[row.name], values.mean, yerr=values.sd, label=label_text(row.title), capsize=3, **style)
    axis.set_xlabel("time of a training step, stock fairseq's = 1")
    axis.set_ylabel("BLEU")
    add_legend(figure, axis)
    return figure

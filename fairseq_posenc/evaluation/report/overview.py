"""The results section of README: one table and one plot, from committed runs. README has no section if there are no runs."""

from __future__ import annotations

import argparse
import csv
import re
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from ... import registry
from ...common.files import read_text, replace_file
from ...plotting.style import add_legend, label_text, line_style, new_figure, render
from ..scoring import archive
from .command import configure
from .comparison import Report, Row, make_report
from .options import Options
from .records import describe, load, read_seed_variance, require_comparable
from .statistics import POOLED
from .tables import conclusions, difference_text, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: in a checkout: the runs, a benchmark, and the plot that README shows
RUNS = Path("results/multi30k_en-de/tiny")
BENCHMARK, PICTURE = Path("results/bench/amd_epyc_2_cores/bench.csv"), Path("docs/results.png")
PART, BASELINE, COST = "test_2016_flickr", "sinusoidal", "training 32x32"

_SECTION = re.compile(r"^## Results\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_BEFORE = "## Compare\n"


def write(root: Path) -> None:
    """Update the section and its plot. README is not changed if there are no runs."""
    if not archive.find(root / RUNS):
        return
    report = _report(root)
    rows = [row for row in report.rows if report.score(row.name, PART, "bleu")]
    costs = _costs(read_text(root / BENCHMARK))
    picture = render("overview", lambda: _draw(report, rows, costs))
    replace_file(root / PICTURE, lambda partial: partial.write_bytes(picture.png))
    text = without(read_text(root / "README.md")).replace(_BEFORE, section(report, rows, costs) + _BEFORE, 1)
    replace_file(root / "README.md", lambda partial: partial.write_text(text, encoding="utf-8"))


def _report(root: Path) -> Report:
    """Return the runs and the seed variance that the command of the committed report names."""
    parser = argparse.ArgumentParser()
    configure(parser)
    file = root / RUNS / "command"
    args = parser.parse_args(shlex.split(read_text(file))[2:] if file.is_file() else [str(RUNS)])
    records = load([root / folder for folder in args.runs])
    require_comparable(records)
    variance = read_seed_variance(root / args.seed_variance) if args.seed_variance else None
    return make_report(records, Options(baseline=BASELINE, sentences=False), variance=variance)


def without(readme: str) -> str:
    """README without the section."""
    return _SECTION.sub("", readme)


def _costs(benchmark: str) -> dict[str, float]:
    """Return the time of training by row, over that of stock fairseq: the benchmark has a method as in its architecture."""
    rows = csv.DictReader(benchmark.splitlines())
    wanted = {"site": "model", "measure": COST, "quantity": "median"}
    found = {row["method"]: float(row["value"]) for row in rows if wanted.items() <= row.items()}
    return {describe(registry.card(name).specs) if name in registry.names() else name: cost for name, cost in found.items()}


def section(report: Report, rows: list[Row], costs: dict[str, float]) -> str:
    head = ["method", "seeds", "BLEU", f"difference to {BASELINE}", "parameters", "time"]
    body = [_cells(report, row, costs) for row in rows]
    table = tabulate(body, head, "pipe", colalign=["left", *["right"] * 5], disable_numparse=True)
    settings = rows[0].runs[0].settings
    (conclusion,) = (text for text in conclusions(report) if text.startswith(f"{PART} BLEU:"))
    return (
        "## Results\n\n"
        f"Captions from English to German (Multi30K, test 2016), {settings['encoder_layers']} and "
        f"{settings['decoder_layers']} layers, {settings['encoder_embed_dim']} wide, {settings['max_epoch']} epochs.\n\n"
        f"{table}\n\n{_filled(_legend(report))}\n\n{_filled(conclusion)}\n\n"
        f"![BLEU with 95 % intervals next to the time of a training step]({PICTURE})\n\n"
    )


def _legend(report: Report) -> str:
    column = report.columns[PART, "bleu"]
    few = any(score.difference and score.difference.test == POOLED for score in column.scores.values())
    assumed = "Rows with fewer than three seeds are assumed to have the same seed variance. " if few and column.spread else ""
    return (
        "BLEU is the mean over training seeds. Brackets contain 95 % intervals of the mean and of the difference. p is corrected "
        f"for the number of rows (Holm). {assumed}Time is that of a training step divided by stock fairseq's "
        f"({COST.split()[-1].replace('x', ' sentences of ')} words, two cores of a CPU)."
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _cells(report: Report, row: Row, costs: dict[str, float]) -> list[str]:
    score = report.score(row.name, PART, "bleu")
    assert score is not None
    return [
        row.title,
        str(score.values.n),
        f"{score.values.mean:.1f}{interval(score.low, score.high, 1)}",
        difference_text(score.difference) if score.difference else "baseline",
        f"{row.runs[0].parameters:,}",
        f"{costs[row.name]:.2f}" if row.name in costs else "not measured",
    ]


def _draw(report: Report, rows: list[Row], costs: dict[str, float]) -> Figure:
    """BLEU with the intervals of the table over cost; open dots are rows that are not distinguishable from the baseline."""
    figure, ((axis,),) = new_figure(6.5, 4)
    for row in rows:
        score = report.score(row.name, PART, "bleu")
        if row.name not in costs or score is None:
            continue
        style = {**line_style(report.rows.index(row)), "linestyle": "none"}
        if score.difference is not None and not score.difference.differs:
            style["markerfacecolor"] = "white"
        mean = score.values.mean
        errors = None if score.low is None or score.high is None else [[mean - score.low], [score.high - mean]]
        axis.errorbar(costs[row.name], mean, yerr=errors, label=label_text(row.title), capsize=3, **style)
    axis.set_xlabel("time of a training step, stock fairseq's = 1")
    axis.set_ylabel("BLEU")
    add_legend(figure, axis)
    return figure

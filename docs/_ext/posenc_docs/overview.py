"""Write the results section of README: one table and one plot of committed runs.

Without committed runs, README is not changed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from fairseq_posenc import registry
from fairseq_posenc.common.files import read_text, replace_file
from fairseq_posenc.evaluation.report.command import configure
from fairseq_posenc.evaluation.report.comparison import Difference, Report, Row, make_report
from fairseq_posenc.evaluation.report.options import Options
from fairseq_posenc.evaluation.report.records import describe, load, read_seed_variance, require_comparable
from fairseq_posenc.evaluation.report.statistics import ALPHA, POOLED
from fairseq_posenc.evaluation.report.tables import difference_text, interval
from fairseq_posenc.evaluation.scoring import archive
from fairseq_posenc.plotting.style import add_legend, label_text, line_style, new_figure, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: paths in a checkout: the runs, and the plot in README
RUNS = Path("results/multi30k_en-de/tiny")
PICTURE = Path("docs/results.png")
#: benchmark -> name of its column, and measure. The plot shows the first benchmark
BENCHMARKS = {
    Path("results/bench/amd_epyc_2_cores/bench.json"): ("time, CPU", "training 32x32"),
    Path("results/bench/nvidia_h100/bench.json"): ("time, GPU", "training 64x64"),
}
PART, BASELINE = "test_2016_flickr", "sinusoidal"

_SECTION = re.compile(r"^## Results\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_BEFORE = "## Compare\n"


def write(root: Path) -> None:
    """Update the section and its plot. Do not change README if there are no runs."""
    if not archive.find(root / RUNS):
        return
    report = _report(root)
    rows = [row for row in report.rows if report.score(row.name, PART, "bleu")]
    costs = {name: _costs(read_text(root / file), measure) for file, (name, measure) in BENCHMARKS.items()}
    picture = render("overview", lambda: _draw(report, rows, next(iter(costs.values()))))
    replace_file(root / PICTURE, lambda partial: partial.write_bytes(picture.png))
    text = without(read_text(root / "README.md")).replace(_BEFORE, section(root, report, rows, costs) + _BEFORE, 1)
    replace_file(root / "README.md", lambda partial: partial.write_text(text, encoding="utf-8"))


def _report(root: Path) -> Report:
    """Return a report with the runs and the seed variance that the command of the committed report uses."""
    parser = argparse.ArgumentParser()
    configure(parser)
    file = root / RUNS / "command"
    args = parser.parse_args(shlex.split(read_text(file))[2:] if file.is_file() else [str(RUNS)])
    records = load([root / folder for folder in args.runs])
    require_comparable(records)
    variance = read_seed_variance(root / args.seed_variance) if args.seed_variance else None
    return make_report(records, Options(baseline=BASELINE, sentences=False), variance=variance)


def without(readme: str) -> str:
    """Return README without the section."""
    return _SECTION.sub("", readme)


def _costs(benchmark: str, measure: str) -> dict[str, float]:
    """Return the training time of each row, divided by the time of stock fairseq.

    The benchmark contains names of methods. This function converts them to names of rows, which contain specs.
    """
    rows = json.loads(benchmark)["rows"]
    found = {row["method"]: row[measure]["median"] for row in rows if row["site"] == "model" and row.get(measure)}
    return {describe(registry.card(name).specs) if name in registry.names() else name: cost for name, cost in found.items()}


def section(root: Path, report: Report, rows: list[Row], costs: dict[str, dict[str, float]]) -> str:
    head = ["method", "seeds", "BLEU", f"difference to {BASELINE}", "parameters", *costs]
    body = [_cells(report, row, costs) for row in rows]
    table = tabulate(body, head, "pipe", colalign=["left", *["right"] * (len(head) - 1)], disable_numparse=True)
    settings = rows[0].runs[0].settings
    return (
        "## Results\n\n"
        "This table compares methods on image captions from English to German (Multi30K). The test set is test_2016_flickr.\n"
        f"The models have {settings['encoder_layers']} encoder layers, {settings['decoder_layers']} decoder layers and width "
        f"{settings['encoder_embed_dim']}. Training has {settings['max_epoch']} epochs.\n\n"
        f"{table}\n\n{_legend(root, report)}\n\n{_filled(_conclusion(report, rows))}\n\n"
        f"![BLEU with 95 % intervals next to the time of a training step]({PICTURE})\n\n"
    )


def _legend(root: Path, report: Report) -> str:
    column = report.columns[PART, "bleu"]
    few = any(score.difference and score.difference.test == POOLED for score in column.scores.values())
    assumed = " For rows with fewer than three seeds, the test assumes that all rows have the same variance over seeds."
    measured = "; ".join(_measured(read_text(root / file), *named) for file, named in BENCHMARKS.items())
    columns = (
        "**BLEU**: mean over training seeds, with its 95 % interval in brackets.",
        f"**Difference to {BASELINE}**: mean of the row minus mean of `{BASELINE}`, with its 95 % interval in brackets. p is the "
        "p-value of a t test over seeds, corrected for the number of rows by Holm's method. The interval is not corrected. The "
        "p-value can therefore be above .05, although the interval does not contain 0."
        + (assumed if few and column.spread else ""),
        f"**Time**: time of a training step, divided by the time of a training step of stock fairseq's Transformer. {measured}.",
    )
    return "\n".join(textwrap.fill(text, 130, initial_indent="* ", subsequent_indent="  ") for text in columns)


def _measured(benchmark: str, name: str, measure: str) -> str:
    """Return the device, the precision, the models and the batch of a benchmark."""
    settings = json.loads(benchmark)["settings"]
    batch = measure.split()[-1].replace("x", " sentences of ")
    return f"{name.split()[-1]}: {settings['device']}, {settings['dtype']}, {settings['size']} models, {batch} words"


def _conclusion(report: Report, rows: list[Row]) -> str:
    """Return one sentence with the rows that differ from the baseline, and one sentence with the number of other rows."""
    scores = ((row, report.score(row.name, PART, "bleu")) for row in rows)
    known = [(row.title, score.difference) for row, score in scores if score and score.difference and score.difference.known]
    found = [_difference(row, value) for row, value in known if value.differs]
    number = len(known) - len(found)
    limit = f"{ALPHA:g}".removeprefix("0")
    rest = f"The other {'row is' if number == 1 else f'{number} rows are'} not distinguishable from `{BASELINE}`."
    listed = ", ".join(found[:-1]) + " and " * (len(found) > 1) + "".join(found[-1:])
    first = f"{listed} differ{'s' * (len(found) == 1)} from `{BASELINE}` (corrected p at most {limit})."
    return " ".join([first] * bool(found) + [rest] * bool(number))


def _difference(row: str, value: Difference) -> str:
    return f"`{row}` ({value.mean:+.1f} BLEU, 95 % interval {value.low:.1f} to {value.high:.1f})"


def _filled(text: str) -> str:
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)


def _cells(report: Report, row: Row, costs: dict[str, dict[str, float]]) -> list[str]:
    score = report.score(row.name, PART, "bleu")
    assert score is not None
    return [
        row.title,
        str(score.values.n),
        f"{score.values.mean:.1f}{interval(score.low, score.high, 1)}",
        difference_text(score.difference) if score.difference else "baseline",
        f"{row.runs[0].parameters:,}",
        *(f"{found[row.name]:.2f}" if row.name in found else "not measured" for found in costs.values()),
    ]


def _draw(report: Report, rows: list[Row], costs: dict[str, float]) -> Figure:
    """Plot BLEU with its interval over cost. Open dots are rows that are not distinguishable from the baseline."""
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
    axis.set_xlabel("time of a training step on a CPU, stock fairseq's = 1")
    axis.set_ylabel("BLEU, mean over seeds and 95 % interval")
    add_legend(figure, axis)
    return figure

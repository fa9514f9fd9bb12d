"""A report as Markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..scoring.sentences import METRICS
from .rows import Row, Values
from .significance import SAMPLES
from .summary import Summary
from .tables import NOT_RUN, Table

_CAPTIONS = {
    "scores": "Scores of every method; with several seeds, lines are one standard deviation and small circles single seeds.",
    "learning": "Validation loss in the course of training.",
    "length": "BLEU by the number of source words.",
}


def markdown(tables: Sequence[Table], notes: Sequence[str], figures: Sequence[str] = ()) -> str:
    """Tables get titles where there are several."""
    from tabulate import tabulate

    text = []
    for table in tables:
        title = f"## {table.title}\n\n" if len(tables) > 1 else ""
        align = ["left"] + ["right"] * (len(table.head) - 1)
        body = [[cell.replace("|", "\\|") for cell in cells] for cells in table.body]
        text.append(title + tabulate(body, headers=table.head, tablefmt="pipe", colalign=align, disable_numparse=True) + "\n\n")
        if table.figure in figures:
            text.append(f"![{_CAPTIONS[table.figure]}]({table.figure}.svg)\n\n")
    return "".join(text) + "".join(f"* {note}\n" for note in notes)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}", "<": r"$<$", ">": r"$>$",
    "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$",
}  # fmt: skip


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"^-(?=\d)", "$-$", escaped)  # a minus, no hyphen


def latex(tables: Sequence[Table], notes: Sequence[str]) -> str:
    lines = [r"% needs \usepackage{booktabs}", ""]
    for table in tables:
        lines += [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\toprule",
            *_latex_rows([table.head]),
            r"\midrule",
            *_latex_rows(table.body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    items = [rf"\item {_latex(note)}" for note in notes]
    return "\n".join([*lines, r"{\footnotesize\begin{itemize}", *items, r"\end{itemize}}", ""])


def _latex_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return [" & ".join(map(_latex, cells)) + r" \\" for cells in rows]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #444; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr:hover { background: #f4f6f8; }
.published { color: #666; font-style: italic; background: #fafafa; }
.none { color: #888; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; height: auto; } figcaption, ul { color: #555; font-size: .9rem; }
"""


def html(tables: Sequence[Table], notes: Sequence[str], figures: Mapping[str, str]) -> str:
    """One page that needs nothing else; `figures` are SVG texts by name."""
    body = []
    for table in tables:
        body += [f"<h2>{escape(table.title)}</h2>", _html_table(table)]
        if table.figure in figures:
            body.append(f"<figure>{_inline(figures[table.figure])}<figcaption>{_CAPTIONS[table.figure]}</figcaption></figure>")
    content, below = "\n".join(body), "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Report</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Report</h1>\n{content}\n"
        f"<h2>How these numbers were made</h2>\n<ul>\n{below}</ul>\n</body>\n</html>\n"
    )


def _html_table(table: Table) -> str:
    published = [name.startswith("published ") for name in table.head]

    def row(tag: str, cells: Sequence[str]) -> str:
        classes = ["published" if mark else "none" if cell == NOT_RUN else "" for cell, mark in zip(cells, published)]
        marked = (f' class="{name}"' if name else "" for name in classes)
        return "<tr>" + "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marked)) + "</tr>"

    rows = "\n".join(row("td", cells) for cells in table.body)
    head = row("th", table.head)
    return f'<div class="wide"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'


def _inline(svg: str) -> str:
    """Within HTML, an SVG needs neither its prolog nor its namespaces."""
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :])


def csv_table(summary: Summary) -> str:
    """A row a method and a number a cell, unrounded, for programs; empty where there is none."""
    rows = [_numbers(summary, row) for row in summary.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _numbers(summary: Summary, row: Row) -> dict[str, Any]:
    runs = row.runs
    found: dict[str, Any] = {
        "method": row.name,
        "reconstruction": "yes" if row.reconstruction else "no",
        "asked_lengths": " ".join(row.asked),
        "seeds": " ".join(str(run.seed) for run in runs) or NOT_RUN,
    }
    for part in summary.parts:
        for metric in METRICS:
            key = f"{part}_{metric}"
            found.update(_spread(key, row.score(part, metric)))
            difference = summary.differences.get((row.name, part, metric))
            found[f"{key}_difference"] = round(difference.values.mean, 4) if difference else ""
            found[f"{key}_p"] = " ".join(f"{p:.6g}" for p in difference.p.values()) if difference else ""
            published = summary.published
            if published and (published.part, published.metric) == (part, metric):
                found[f"published_{key}"] = published.figures.get(row.name, "")
    added = summary.added_parameters(row)
    found["parameters"] = runs[0].parameters if runs else ""
    found["parameters_added"] = "" if added is None else added
    for key in ("tokens_per_second", "training_seconds"):
        found.update(_spread(key, row.values(lambda run, key=key: getattr(run, key))))
    found["peak_memory_gib"] = "" if row.peak_memory is None else row.peak_memory
    found.update(_spread("validation_loss", row.final_loss))
    for part, lengths in summary.lengths.items():
        for i in lengths.shown:
            found.update(_spread(f"{part}_bleu_{lengths.names[i].replace('-', '_')}_words", lengths.rows[row.name][i]))
    return found


def _spread(key: str, values: Values | None) -> dict[str, Any]:
    if values is None:
        return {f"{key}_mean": "", f"{key}_sd": "", f"{key}_n": 0}
    sd = "" if values.sd is None else round(values.sd, 4)
    return {f"{key}_mean": round(values.mean, 4), f"{key}_sd": sd, f"{key}_n": values.n}


def as_json(summary: Summary, notes: Sequence[str]) -> dict[str, Any]:
    """All numbers of a summary, unrounded; what it has not computed, or a run does not say, is None."""
    compared = summary.baseline is not None
    return {
        "parts": summary.parts,
        "baseline": summary.baseline,
        "test": summary.test if compared else None,
        "samples": (summary.samples or SAMPLES[summary.test]) if compared else None,
        "rows": [_row_as_json(summary, row) for row in summary.rows],
        "notes": list(notes),
    }


def _row_as_json(summary: Summary, row: Row) -> dict[str, Any]:
    return {
        "method": row.name,
        "reconstruction": row.reconstruction,
        "asked_lengths": row.asked,
        "seeds": [run.seed for run in row.runs],
        "scores": {part: {metric: _score_as_json(summary, row, part, metric) for metric in METRICS} for part in summary.parts},
        "parameters": row.runs[0].parameters if row.runs else None,
        "parameters_added": summary.added_parameters(row),
        "tokens_per_second": _values_as_json(row.values(lambda run: run.tokens_per_second)),
        "training_seconds": _values_as_json(row.values(lambda run: run.training_seconds)),
        "peak_memory_gib": row.peak_memory,
        "validation_loss": _values_as_json(row.final_loss),
        "bleu_by_length": {
            part: [
                {"words": lengths.names[i], "sentences": lengths.sentences[i], "bleu": _values_as_json(lengths.rows[row.name][i])}
                for i in lengths.shown
            ]
            for part, lengths in summary.lengths.items()
        },
    }


def _score_as_json(summary: Summary, row: Row, part: str, metric: str) -> dict[str, Any] | None:
    found = _values_as_json(row.score(part, metric))
    if found is None:
        return None
    difference, published = summary.differences.get((row.name, part, metric)), summary.published
    found["difference"] = {**_values_as_json(difference.values), "p": difference.p} if difference else None
    if published and (published.part, published.metric) == (part, metric):
        found["published"] = published.figures.get(row.name)
    return found


def _values_as_json(values: Values | None) -> dict[str, Any] | None:
    return None if values is None else {"mean": values.mean, "sd": values.sd, "by_seed": values.by_seed}

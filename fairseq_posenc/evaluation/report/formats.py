"""Convert a report to Markdown, LaTeX, HTML, CSV and JSON, and to text for the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from ...common.cells import aligned_table, csv_cell, csv_file, markdown_cell, markdown_text
from ...common.messages import shorten
from .comparison import BEST, TIED, Report, Row, Score, Values
from .tables import NOT_RUN, Table


def _tabulate(table: Table, form: str, text: Callable[[str], str], marks: Mapping[str, Callable[[str], str]]) -> str:
    """Return the table in a format of tabulate. `text` escapes cells, and `marks` highlights cells with a rank."""
    body = [
        [marks.get(table.ranks.get((i, j), ""), str)(text(cell)) for j, cell in enumerate(cells)]
        for i, cells in enumerate(table.body)
    ]
    return aligned_table([text(cell) for cell in table.head], body, form)


# --- Markdown ---


def markdown(tables: Sequence[Table], notes: Sequence[str], figures: Mapping[str, str] | None = None) -> str:
    """Return the report as Markdown. A single table has no title. `figures` contains the file name of each figure."""
    text = []
    for table in tables:
        title = f"## {markdown_text(table.title)}\n\n" if len(tables) > 1 else ""
        marks = {BEST: lambda cell: f"**{cell}**", TIED: lambda cell: f"*{cell}*"}
        text.append(title + _tabulate(table, "pipe", markdown_cell, marks) + "\n\n")
        text += [f"{markdown_text(sentence)}\n\n" for sentence in table.text]
        if table.figure in (figures or {}):
            text.append(f"![{table.caption}]({figures[table.figure]})\n\n")
    return "".join(text) + "".join(f"* {markdown_text(note)}\n" for note in notes)


def compact(text: str) -> str:
    """Remove the spaces that align the columns of wide tables. Shorten the rows of hyphens below the column headings.

    Wide tables are not readable as text even if their columns are aligned. Removing the spaces halves the size of the file.
    """
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("|") and len(line) > _WIDEST:
            rule = re.sub("-{3,}", "---", line) if re.fullmatch(r"[|:\-\s]+", line) else line
            lines[number] = re.sub(r"(?<=\|) +| +(?=\|)", " ", rule)
    return "".join(lines)


_NARROWEST, _WIDEST = 40, 130  # minimum width of a terminal, and maximum width of an aligned table in a file, in characters


def terminal_width() -> int | None:
    """Return the width of the terminal, or None if the output is not a terminal."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def show(tables: Sequence[Table], notes: Sequence[str], width: int | None) -> str:
    """Return the report for a terminal.

    A table that is wider than the terminal is split by columns. Each part repeats the names of the rows.
    """
    if width is None:
        return markdown(tables, notes)
    found = []
    for table in tables:
        fitting = [*_fit(replace(table, text=[]), width)]
        titled = (f"## {part.title}\n\n{markdown([part], ())}" for part in fitting)
        found.append(markdown(fitting, ()) if len(tables) == 1 else "".join(titled))
        found += [textwrap.fill(sentence, width) + "\n\n" for sentence in table.text]
    wrapped = "".join(textwrap.fill(f"* {note}", width, subsequent_indent="  ") + "\n" for note in notes)
    return "".join(found) + wrapped


def _fit(table: Table, width: int) -> Iterator[Table]:
    names = [shorten(cells[0], width // 2) for cells in table.body]
    if len(set(names)) < len(names):  # two rows would have the same name
        names = [cells[0] for cells in table.body]
    columns: list[int] = []
    for column in range(1, len(table.head)):
        wider = markdown([_select(table, names, [*columns, column])], ())
        if columns and max(map(len, wider.splitlines())) > width:
            yield _select(table, names, columns)
            columns = []
        columns.append(column)
    yield _select(table, names, columns)


def _select(table: Table, names: list[str], columns: list[int]) -> Table:
    body = [[name, *(cells[column] for column in columns)] for name, cells in zip(names, table.body)]
    ranks = {(i, 1 + columns.index(j)): rank for (i, j), rank in table.ranks.items() if j in columns}
    return replace(table, head=[table.head[0], *(table.head[column] for column in columns)], body=body, ranks=ranks)


# --- LaTeX ---

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}", "<": r"$<$", ">": r"$>$",
    "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$",
})  # fmt: skip


def latex(tables: Sequence[Table], notes: Sequence[str], name: str = "report") -> str:
    """Return one LaTeX float per table. The label is tab:NAME-TITLE.

    The caption contains the title of the table, and the sentences of the table (`Table.text`).
    """
    found = [r"% needs \usepackage{booktabs}" + "\n"]
    for table in tables:
        marks = {BEST: lambda cell: rf"\textbf{{{cell}}}", TIED: lambda cell: rf"\textit{{{cell}}}"}
        tabular = _tabulate(table, "latex_raw", _latex, marks)
        for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
            tabular = tabular.replace(r"\hline", rule, 1)
        caption = " ".join(_latex(sentence) for sentence in [f"{table.title}.", *table.text])
        label = re.sub(r"[^a-z0-9]+", "-", f"{name} {table.title}".lower()).strip("-")
        found.append(
            f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\label{{tab:{label}}}\n{tabular}\n\\end{{table}}\n"
        )
    items = [rf"\item {_latex(note)}" for note in notes]
    return "\n".join([*found, r"{\footnotesize\begin{itemize}", *items, r"\end{itemize}}", ""])


def _latex(text: str) -> str:
    separate = re.sub("-(?=-)", "-{}", text.translate(_LATEX))  # otherwise LaTeX prints -- as a dash
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", separate)  # a hyphen before a number becomes a minus sign


# --- HTML ---

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #444; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { padding-left: 0; }
tbody tr:hover { background: #f4f6f8; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; height: auto; } figcaption, ul { color: #555; font-size: .9rem; }
"""


def html(tables: Sequence[Table], notes: Sequence[str], figures: Mapping[str, str]) -> str:
    """Return one HTML page without external files. `figures` contains the SVG text of each figure."""
    body = []
    for table in tables:
        marks = {BEST: lambda cell: f"<strong>{cell}</strong>", TIED: lambda cell: f"<em>{cell}</em>"}
        cells = _tabulate(table, "unsafehtml", escape, marks)
        body += [f"<h2>{escape(table.title)}</h2>", f'<div class="wide">{cells}</div>']
        body += [f"<p>{escape(sentence)}</p>" for sentence in table.text]
        if table.figure in figures:
            svg = figures[table.figure]
            svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg[svg.index("<svg") :])  # HTML needs no prolog and no namespaces
            body.append(f"<figure>{svg}<figcaption>{table.caption}</figcaption></figure>")
    content, below = "\n".join(body), "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Report</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Report</h1>\n{content}\n"
        f"<h2>How these numbers were computed</h2>\n<ul>\n{below}</ul>\n</body>\n</html>\n"
    )


# --- numbers for programs ---


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, with one column per key. A cell that a spreadsheet would evaluate gets a leading apostrophe."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([row.get(column, "") for column in columns] for row in rows)]
    return csv_file(map(csv_cell, line) for line in lines)


def csv_table(report: Report) -> str:
    """Return a CSV file with one line per method. Scores have four decimals. Missing numbers are empty."""
    return csv_text([_numbers(report, row) for row in report.rows])


def _numbers(report: Report, row: Row) -> dict[str, Any]:
    runs = row.runs
    found: dict[str, Any] = {
        "method": row.name,
        "reconstruction": "yes" if row.reconstruction else "no",
        "asked_lengths": " ".join(row.asked),
        "seeds": " ".join(str(run.seed) for run in runs) or NOT_RUN,
    }
    for part, metric in report.columns:
        key, score = f"{part}_{metric}", report.score(row.name, part, metric)
        difference = score.difference if score else None
        found |= _spread(key, score.values if score else None)
        if report.published and (report.published.part, report.published.metric) == (part, metric):
            found[f"{key}_published"] = report.published.figures.get(row.name, "")
        over_sentences = report.sentence_tests.get((row.name, part, metric), {})
        found |= {
            f"{key}_low": _rounded(score and score.low),
            f"{key}_high": _rounded(score and score.high),
            f"{key}_rank": score.rank if score else "",
            f"{key}_difference": _rounded(difference and difference.mean),
            f"{key}_difference_low": _rounded(difference and difference.low),
            f"{key}_difference_high": _rounded(difference and difference.high),
            f"{key}_p": _rounded(difference and difference.p, 6),
            f"{key}_holm_p": _rounded(difference and difference.holm, 6),
            f"{key}_test": difference.test if difference else "",
            f"{key}_sentences_holm_p": " ".join(f"{p:.6g}" for p in over_sentences.values()),
        }
    speed, seconds = (row.values(lambda run, name=name: getattr(run, name)) for name in ("tokens_per_second", "training_seconds"))
    found |= {
        "parameters": runs[0].parameters if runs else "",
        "parameters_added": _rounded(report.added_parameters(row)),
        "tokens_per_second": _rounded(speed and speed.mean, 1),
        "training_seconds": _rounded(seconds and seconds.mean, 1),
        "peak_memory_gib": "" if row.peak_memory is None else row.peak_memory,
        **_spread("validation_loss", row.final_loss),
    }
    for part, lengths in report.lengths.items():
        for i in lengths.shown:
            found |= _spread(f"{part}_bleu_{lengths.names[i]}", lengths.rows[row.name][i])
    return found


def _rounded(value: float | None, digits: int = 4) -> Any:
    return "" if value is None else round(value, digits)


def _spread(key: str, values: Values | None) -> dict[str, Any]:
    if values is None:
        return {f"{key}_mean": "", f"{key}_sd": "", f"{key}_n": 0}
    return {f"{key}_mean": round(values.mean, 4), f"{key}_sd": _rounded(values.sd), f"{key}_n": values.n}


def as_json(report: Report, notes: Sequence[str], conclusions: Sequence[str]) -> dict[str, Any]:
    """Return all numbers of a report without rounding, as JSON types. None: the number was not computed or is unknown."""
    compared = report.options.sentences
    return {
        "parts": report.parts,
        "baseline": report.baseline,
        "seed_test": report.options.seed_test,
        "test": report.options.test if compared else None,
        "samples": report.options.samples if compared else None,
        "smaller_is_better": sorted({metric for (_, metric), column in report.columns.items() if column.smaller_is_better}),
        "rows": [_row_as_json(report, row) for row in report.rows],
        "conclusions": list(conclusions),
        "notes": list(notes),
    }


def _row_as_json(report: Report, row: Row) -> dict[str, Any]:
    return {
        "method": row.name,
        "reconstruction": row.reconstruction,
        "asked_lengths": row.asked,
        "seeds": [run.seed for run in row.runs],
        "scores": {
            part: {metric: _score_as_json(report, row, part, metric) for metric in report.metrics(part)} for part in report.parts
        },
        "parameters": row.runs[0].parameters if row.runs else None,
        "parameters_added": report.added_parameters(row),
        "tokens_per_second": _values_as_json(row.values(lambda run: run.tokens_per_second)),
        "training_seconds": _values_as_json(row.values(lambda run: run.training_seconds)),
        "peak_memory_gib": row.peak_memory,
        "validation_loss": _values_as_json(row.final_loss),
        "bleu_by_length": {
            part: [
                {"words": lengths.names[i], "sentences": lengths.sentences[i], "bleu": _values_as_json(lengths.rows[row.name][i])}
                for i in lengths.shown
            ]
            for part, lengths in report.lengths.items()
        },
    }


def _score_as_json(report: Report, row: Row, part: str, metric: str) -> dict[str, Any] | None:
    score, published = report.score(row.name, part, metric), report.published
    known = published and (published.part, published.metric) == (part, metric)
    if score is None:
        return {"published": published.figures[row.name]} if known and row.name in published.figures else None
    found = {**(_values_as_json(score.values) or {}), "low": score.low, "high": score.high, "rank": score.rank or None}
    found["difference"] = _difference_as_json(score, report.sentence_tests.get((row.name, part, metric), {}))
    if known:
        found["published"] = published.figures.get(row.name)
    return found


def _difference_as_json(score: Score, over_sentences: Mapping[int, float]) -> dict[str, Any] | None:
    found = score.difference
    if found is None:
        return None
    numbers = {"mean": found.mean, "low": found.low, "high": found.high, "p": found.p, "holm_p": found.holm}
    return {**numbers, "test": found.test or None, "sentences_holm_p": dict(over_sentences)}


def _values_as_json(values: Values | None) -> dict[str, Any] | None:
    return None if values is None else {"mean": values.mean, "sd": values.sd, "by_seed": values.by_seed}

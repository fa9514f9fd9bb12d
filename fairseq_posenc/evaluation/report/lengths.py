"""`posenc report --view lengths`: requested and produced output lengths of runs, from their score.json files."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.files import make_folder, write_files
from ...common.messages import shorten
from ...core import PositionError
from ..scoring.lengths import WITHIN, Lengths
from ..scoring.sentences import SentenceStatistics, corpus_score
from .formats import csv_text
from .sentences import bucket_name, buckets_up_to, in_bucket
from .tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..scoring.record import PartScores, Record

_PANEL, _COLUMNS = 2.2, 4  # size of a panel in inches, and maximum number of panels per line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `posenc lengths`, the earlier name of this command."""
    parser.description = (
        "Compare requested and produced output lengths, and compute BLEU. The test sets must be decoded with --length-from, "
        "or by a model that reads lengths. This command is the earlier name of posenc report --view lengths."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run, or folder of runs")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for tables in Markdown and CSV, and a plot")
    parser.set_defaults(view=None, name=None)


def run(args: argparse.Namespace) -> int:
    from . import formats

    decodings = load(args.runs)
    if args.view is None:
        print("posenc lengths is now: posenc report --view lengths", file=sys.stderr)
    tables = make_tables(decodings)
    if args.output is None:
        print(formats.show(tables, (), formats.terminal_width()), end="")
        return 0
    from ...plotting.style import render

    make_folder(args.output)
    name = args.name or "lengths"
    plot = render("lengths", lambda: draw(decodings))
    figure = f"![Requested and produced lengths; lines are one standard deviation.]({name}.png)\n"
    files = {
        f"{name}.md": "# Output lengths\n\n" + formats.compact(formats.markdown(tables, ())) + figure,
        f"{name}.csv": csv_table(decodings),
        f"{name}.svg": plot.svg,
        f"{name}.png": plot.png,
    }
    print(f"{args.output}: {', '.join(write_files(args.output, files))}")
    return 0


@dataclass(frozen=True)
class Decoding:
    """The output lengths of one test set of one run."""

    row: str
    part: str
    scores: PartScores
    lengths: Lengths
    statistics: SentenceStatistics

    @property
    def asked(self) -> str:
        """Return the name of the requested lengths in tables: their source, the ratio, and the end of sentences.

        Examples are 'reference', '0.8 reference' with a ratio, and 'reference, end exact' with --length-eos exact.
        """
        asked = self.scores.asked
        ratio = "" if asked.ratio == 1 else f"{asked.ratio:g} "
        return f"{ratio}{asked.source}" + ("" if asked.end == "free" else f", end {asked.end}")

    def measured(self, rows: list[int] | None = None) -> dict[str, float]:
        """Return all metrics of the sentences with the indices `rows`, or of all sentences."""
        rows = list(range(len(self.lengths.got))) if rows is None else rows
        score = corpus_score("bleu", [self.statistics.bleu[row] for row in rows])
        others = {"length_ratio": score.ratio, "brevity_penalty": score.bp, "bleu": score.score}
        return {**self.lengths.of(rows).metrics(), **others}

    def buckets(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the name of each bucket of source lengths, and the indices of its sentences."""
        words = self.statistics.source_words or []
        for bucket in buckets_up_to(max(words, default=0)):
            if rows := in_bucket(words, bucket):
                yield bucket_name(bucket), rows


def load(folders: list[Path]) -> list[Decoding]:
    """Return all decodings with requested lengths, from the runs below these folders.

    The order is the order of the folders, and within each folder the order of the paths. Copies of a run count once.

    Raises:
        PositionError: No run has requested lengths. Two runs differ in their data or their settings, except in --length-noise,
            or in the unit of the lengths. Two runs have the same name.
    """
    from ..scoring.archive import find
    from ..scoring.record import FILE, same_content
    from .records import require_comparable

    runs = {path: record for folder in folders for path, record in find(folder).items()}
    if not runs:
        listed = shorten(", ".join(map(str, folders)))
        raise PositionError(f"{listed}: no {FILE} in this folder. Expected a scored run. Run posenc score first.")
    records: list[Record] = []
    for record in runs.values():
        if not any(same_content(record, earlier) for earlier in records):  # a run can be in two folders
            records.append(record)
    found = [decoding for record in records for decoding in _decodings(record, records)]
    if not found:
        raise PositionError(
            "no output lengths were requested in these runs. Decode a test set with --task posenc_translation --length-from "
            "reference, then run posenc score again."
        )
    require_comparable([shown for record in records if (shown := _without_lengths(record)).parts])
    units = sorted({decoding.scores.asked.unit for decoding in found})
    if len(units) > 1:
        raise PositionError(
            f"output lengths have different units ({' and '.join(units)}). Expected runs with the same unit. "
            "Compare them separately."
        )
    found = _named_by_part(found)
    if same := _repeated(found):
        row, asked = min(same)
        raise PositionError(
            f"{shorten(row)}: several runs with the same name and the requested length {asked}. Expected different rows. Compare "
            "these runs separately."
        )
    return found


def _without_lengths(record: Record) -> Record:
    """Return a run without the conditions that this view compares: --length-noise, and the requested lengths.

    Test sets without requested lengths are also left out, because this view does not show them.
    """
    settings = {name: value for name, value in record.settings.items() if name != "length_noise"}
    parts = {part: scores.model_copy(update={"asked": None}) for part, scores in record.parts.items() if scores.asked}
    return record.model_copy(update={"settings": settings, "parts": parts})


def _repeated(decodings: list[Decoding]) -> set[tuple[str, str]]:
    """Return each pair (row, requested length) that at least two decodings have."""
    number = Counter((decoding.row, decoding.asked) for decoding in decodings)
    return {key for key in number if number[key] > 1}


def _named_by_part(decodings: list[Decoding]) -> list[Decoding]:
    """Append the test set to the name of a row, if the same lengths were requested for several test sets.

    This applies to several test sets of one row, and to test sets of several rows with different references.
    """
    references: dict[str, set[str | None]] = {}
    for decoding in decodings:
        references.setdefault(decoding.asked, set()).add(decoding.scores.reference)
    rows = {row for row, _ in _repeated(decodings)} | {
        decoding.row for decoding in decodings if len(references[decoding.asked]) > 1
    }
    return [
        replace(decoding, row=f"{decoding.row}, {decoding.part}") if decoding.row in rows else decoding for decoding in decodings
    ]


def _decodings(record: Record, all_records: list[Record]) -> Iterator[Decoding]:
    for part, scores in record.parts.items():
        if scores.asked is None or scores.lengths is None or scores.statistics is None:
            continue
        try:
            lengths, statistics = Lengths.unpack(scores.lengths), SentenceStatistics.unpack(scores.statistics)
            if not len(lengths.got) == len(statistics.bleu) == scores.sentences:
                raise ValueError("wrong number of sentences")
        except Exception as error:  # unpacking damaged statistics can raise errors of many types
            raise PositionError(
                f"{_name(record, all_records)}, {part}: the output lengths are damaged ({error}). Run posenc score again."
            ) from None
        yield Decoding(_name(record, all_records), part, scores, lengths, statistics)


def _name(record: Record, records: list[Record]) -> str:
    """Return the name of a run in a table: the method, the value of --length-noise, and the seed.

    By default, the method is the name of the row (`records.label`). If all runs have the same encoder
    spec and the cross-attention spec of this run is `none`, the decoder spec replaces the specs of all sites. If all runs have
    the same seed, the name does not contain the seed. If the training run did not end, the name says so.
    """
    from .records import label, traits

    encoders = {other.method.get("encoder") for other in records}
    name = label(record)
    if len(encoders) == 1 and record.method.get("cross") == "none":
        name = " ".join([record.method["decoder"], *(f"({trait})" for trait in traits(record))])
    noise = record.settings.get("length_noise")
    seed = f", seed {record.seed}" if len({other.seed for other in records}) > 1 else ""
    unfinished = " (training did not end)" if record.unfinished else ""
    return name + (f", noise {noise}" if noise else "") + seed + unfinished


def make_tables(decodings: list[Decoding]) -> list[Table]:
    unit = {"token": "tokens", "char": "characters"}[decodings[0].scores.asked.unit]
    rows, asked = _rows(decodings), list(dict.fromkeys(decoding.asked for decoding in decodings))
    at = {(decoding.row, decoding.asked): decoding.measured() for decoding in decodings}

    def table(title: str, metric: str, digits: int) -> Table:
        cells = {key: f"{measured[metric]:.{digits}f}" for key, measured in at.items()}
        return Table(title, ["decoder", *asked], [[row, *(cells.get((row, name), "") for name in asked)] for row in rows])

    return [
        table(f"Mean absolute difference between produced and requested length, in {unit}", "mean_absolute_difference", 2),
        table(f"Mean squared difference between produced and requested length, in {unit}", "variance", 2),
        table("Ratio of produced to reference length, in words", "length_ratio", 2),
        table("BLEU", "bleu", 1),
        _accuracy(decodings),
        *_by_source(decodings),
    ]


def _rows(decodings: list[Decoding]) -> list[str]:
    return list(dict.fromkeys(decoding.row for decoding in decodings))


def _of_references(decodings: list[Decoding]) -> list[Decoding]:
    """Return the decodings whose requested lengths are the reference lengths.

    If there are none, return the decodings with the same kind of requested lengths as the first decoding.
    """
    wanted = "reference" if any(decoding.asked == "reference" for decoding in decodings) else decodings[0].asked
    return [decoding for decoding in decodings if decoding.asked == wanted]


def _accuracy(decodings: list[Decoding]) -> Table:
    chosen = _of_references(decodings)
    columns = {**{f"within {n}": f"within_{n}" for n in WITHIN}, "within 5 %": "within_5_percent"}
    others = {"length ratio": ("length_ratio", 3), "brevity penalty": ("brevity_penalty", 3), "BLEU": ("bleu", 1)}
    body = []
    for decoding in chosen:
        found = decoding.measured()
        shares = [f"{100 * found[metric]:.1f} %" for metric in columns.values()]
        body.append([decoding.row, *shares, *(f"{found[metric]:.{digits}f}" for metric, digits in others.values())])
    return Table(
        f"Share of sentences within a distance of the requested length: {chosen[0].asked}", ["decoder", *columns, *others], body
    )


def _by_source(decodings: list[Decoding]) -> list[Table]:
    """Return one table per test set, because test sets have different numbers of sentences of each length."""
    chosen, tables = _of_references(decodings), []
    parts = list(dict.fromkeys(decoding.part for decoding in chosen))
    for part in parts:
        of_part = [decoding for decoding in chosen if decoding.part == part]
        body = []
        for decoding in of_part:
            found = [decoding.lengths.of(rows).metrics()["mean_absolute_difference"] for _, rows in decoding.buckets()]
            body.append([decoding.row, *(f"{difference:.2f}" for difference in found)])
        head = ["decoder", *(f"{name} words (n = {len(rows)})" for name, rows in of_part[0].buckets())]
        title = f"Mean absolute difference by source length: {chosen[0].asked}{f', {part}' if len(parts) > 1 else ''}"
        tables.append(Table(title, head, body))
    return tables


def csv_table(decodings: list[Decoding]) -> str:
    """Return a CSV file. Each decoding has one line for all sentences, and one line for each bucket of source lengths."""
    rows: list[dict[str, Any]] = []
    for decoding in decodings:
        known = {"decoder": decoding.row, "part": decoding.part, **decoding.scores.asked.model_dump()}
        for name, chosen in (("all", None), *decoding.buckets()):
            size = len(decoding.lengths.got) if chosen is None else len(chosen)
            measured = {key: round(value, 4) for key, value in decoding.measured(chosen).items()}
            rows.append({**known, "source_words": name, "sentences": size, **measured})
    return csv_text(rows)


def draw(decodings: list[Decoding]) -> Figure:
    """Plot one panel per row: the mean produced length for every requested length.

    A panel contains only decodings whose requested lengths were computed from the references or from the sources.
    """
    import statistics

    from ...plotting.style import first_axes, label_text, line_style, new_figure

    rows, unit = _rows(decodings), decodings[0].scores.asked.unit
    columns = min(_COLUMNS, len(rows))
    height = -(-len(rows) // columns)
    figure, axes = new_figure(_PANEL * columns + 0.5, _PANEL * height + 0.5, height, columns, sharex=True, sharey=True)
    longest = max(length for decoding in decodings for length in decoding.lengths.asked)
    for index, (row, axis) in enumerate(zip(rows, first_axes(axes, len(rows)))):
        by_asked: dict[int, list[int]] = {}
        for decoding in decodings:
            if decoding.row == row and decoding.scores.asked.source in ("reference", "source"):
                for asked, got in zip(decoding.lengths.asked, decoding.lengths.got):
                    by_asked.setdefault(asked, []).append(got)
        x = sorted(by_asked)
        style = line_style(index)
        axis.plot([0, longest], [0, longest], color="#999999", linewidth=0.8)
        spread = [statistics.pstdev(by_asked[length]) for length in x]
        means = [statistics.fmean(by_asked[length]) for length in x]
        axis.errorbar(x, means, yerr=spread, fmt=style["marker"], markersize=2.5, color=style["color"], elinewidth=0.6)
        axis.set_title(label_text(row), loc="left", fontsize=8)
    figure.supxlabel(f"requested length ({unit}s)", fontsize=9)
    figure.supylabel(f"produced length ({unit}s)", fontsize=9)
    return figure

"""`posenc report`: all runs side by side, from their score.json files and nothing else."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.files import replace_file
from ...common.option_types import positive, print_json
from ...core import PositionError
from ...registry.completion import specs
from .chance import COMMITTED
from .significance import SAMPLES, TESTS

if TYPE_CHECKING:
    from .summary import Summary


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare all scored runs below a folder: a table on the screen, or a report in files."
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder of runs")
    parser.add_argument(
        "--methods", nargs="+", default=[], metavar="SPEC", help="methods of the first rows, in this order"
    ).completer = specs
    parser.add_argument(
        "--full", action="store_true", help="additional tables: differences, training cost, BLEU by source length"
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder for all tables in Markdown, LaTeX, CSV and HTML, with plots"
    )
    forms.add_argument("--json", action="store_true", help="JSON output: an object with the numbers of the tables")
    parser.add_argument("--published", type=Path, metavar="FILE", help="JSON file of published scores, for additional columns")
    parser.add_argument(
        "--chance", type=Path, default=COMMITTED, metavar="FOLDER",
        help="runs of recipes/studies/chance, for the seed variance (default: results/chance of the checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", metavar="SPEC", help="method of the baseline (default: sinusoidal, or else the first row)"
    ).completer = specs
    parser.add_argument(
        "--test",
        default="bs",
        choices=TESTS,
        help="significance test: bs is paired bootstrap, ar is approximate randomization (default: %(default)s)",
    )
    samples = ", ".join(f"{test} {number}" for test, number in SAMPLES.items())
    parser.add_argument(
        "--samples",
        type=positive,
        default=0,
        metavar="N",
        help=f"resamples or trials of the test (default: {samples}, as in sacreBLEU)",
    )


def run(args: argparse.Namespace) -> int:
    from . import formats, screen, tables
    from .notes import notes
    from .published import read_published
    from .records import load, require_comparable
    from .significance import random_seed
    from .summary import summarise

    if args.chance != COMMITTED and not args.chance.is_dir():
        raise PositionError(f"--chance {args.chance} is no folder; name one with runs of several seeds")
    random_seed()  # before the work whose end would show a wrong one
    figures = read_published(args.published) if args.published else None
    records = load(args.runs)
    require_comparable(records)
    if args.output:
        _make(args.output)  # before the tests, which take a while
    full = bool(args.full or args.output)
    compare = full or args.baseline is not None
    summary = summarise(records, args.methods, figures, args.baseline, compare, args.test, args.samples, args.chance)
    if args.output:
        print(f"{args.output}: {', '.join(write(summary, args.output))}")
        return 0
    if args.json:
        print_json(formats.as_json(summary, notes(summary, full)))
        return 0
    shown = tables.all_tables if full else tables.compared_tables if compare else lambda summary: [tables.screen_table(summary)]
    print(screen.show(shown(summary), notes(summary, full), screen.terminal_width()), end="")
    return 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PositionError(f"the report cannot be written into {folder}: {error.strerror}") from None


def write(summary: Summary, folder: Path) -> list[str]:
    """Write all files of the report; return their names."""
    from . import formats, plots
    from .notes import notes
    from .tables import all_tables

    figures = plots.draw_plots(summary)
    tables, below = all_tables(summary), notes(summary, full=True)
    files: dict[str, str | bytes] = {
        "report.md": "# Report\n\n" + formats.markdown(tables, below, [*figures]),
        "report.tex": formats.latex(tables, below),
        "report.csv": formats.csv_table(summary),
        "report.html": formats.html(tables, below, {name: figure.svg for name, figure in figures.items()}),
        **{f"{name}.svg": figure.svg for name, figure in figures.items()},
        **{f"{name}.png": figure.png for name, figure in figures.items()},
    }
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        replace_file(folder / name, lambda partial, data=data: partial.write_bytes(data))
    return list(files)

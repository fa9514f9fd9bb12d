"""The command line of `posenc report`, which compares runs by their score.json files."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.files import make_folder, write_files
from ...common.option_types import not_negative, positive, print_json
from ...core import PositionError
from ...registry.completion import specs
from .options import ORDERS, RANDOMIZATION, SAMPLES, SEED_TESTS, TESTS, VIEWS, Options

if TYPE_CHECKING:
    from .comparison import Report

_MOST_DIGITS = 6


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare all scored runs below a folder. Print a table, or write a report with --output. The runs must have equal "
        "settings, except method and seed. If several folders contain the same run, it is used only once."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folder of runs")
    parser.add_argument(
        "--view", choices=VIEWS, default="scores", help="scores, or requested and produced output lengths (default: %(default)s)"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=[],
        metavar="SPEC",
        help="rows for these methods in addition to the rows with runs. A method without runs gets an empty row",
    ).completer = specs
    parser.add_argument(
        "--order", choices=ORDERS, default="score",
        help="order of the rows: score (best first), or given (the order of --methods, then by name); default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--decimals", type=_digits, default=1, metavar="N", help="decimals of scores (default: %(default)s)")
    parser.add_argument(
        "--full", action="store_true", help="additional tables: differences, training cost, BLEU by source length"
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder for all tables in Markdown, LaTeX, CSV and HTML, with plots"
    )
    forms.add_argument("--json", action="store_true", help="JSON output: an object with the numbers of the tables")
    parser.add_argument("--name", type=_name, metavar="NAME", help="file name of the report, without extension (default: report)")
    parser.add_argument("--published", type=Path, metavar="FILE", help="JSON file of published scores, for an additional column")
    parser.add_argument(
        "--seed-variance", "--chance", dest="seed_variance", type=Path, metavar="FILE|FOLDER",
        help="other runs with several seeds (folder), or their scores (JSON file). The seed variance of these runs and the "
        "seed variance of the table are pooled. Rows with one or two seeds use this pooled variance",
    )  # fmt: skip
    parser.add_argument(
        "--seed-test", choices=SEED_TESTS, default="welch",
        help="t test over seeds: welch, or paired for rows that have the same seeds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline",
        metavar="SPEC",
        help="method of the baseline (default: sinusoidal, or else the first of --methods, "
        "or else the first in alphabetical order)",
    ).completer = specs
    parser.add_argument(
        "--test", default=RANDOMIZATION, choices=TESTS,
        help="two-sided test over sentences: paired approximate randomization or bootstrap (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--samples",
        type=positive,
        default=SAMPLES,
        metavar="N",
        help="trials or samples of the test (default: %(default)s)",
    )


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w.-]{1,100}", text) or text.startswith("."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file name. Expected letters, digits, '.', '_' and '-'")
    return text


def _digits(text: str) -> int:
    number = not_negative(text)
    if number > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text} is too many. Expected 0 to {_MOST_DIGITS}")
    return number


def run(args: argparse.Namespace) -> int:
    _require_effect(args)
    if args.view == "lengths":
        from . import lengths

        _require_options_of_lengths(args)
        return lengths.run(args)
    from . import formats, tables
    from .comparison import make_report
    from .records import load, read_published, read_seed_variance, require_comparable
    from .sentences import random_seed

    random_seed()  # check SACREBLEU_SEED before the long computation, because a wrong seed raises an error
    figures = read_published(args.published) if args.published else None
    variance = read_seed_variance(args.seed_variance) if args.seed_variance else None
    records = load(args.runs)
    require_comparable(records)
    if args.output:
        make_folder(args.output)  # create the folder before the long tests, because creating a folder can fail
    full = bool(args.full or args.output)
    compare = full or args.baseline is not None
    options = Options(args.methods, args.baseline, args.order, args.seed_test, compare, args.test, args.samples)
    report = make_report(records, options, figures, variance)
    if args.output:
        print(f"{args.output}: {', '.join(write(report, args.output, args.name or 'report', args.decimals))}")
    elif args.json:
        print_json(formats.as_json(report, tables.notes(report, full), tables.conclusions(report, args.decimals)))
    else:
        shown = tables.all_tables if full else tables.compared_tables if compare else lambda *given: [tables.score_table(*given)]
        print(formats.show(shown(report, args.decimals), tables.notes(report, full), formats.terminal_width()), end="")
    return 0


def _require_effect(args: argparse.Namespace) -> None:
    """Raise PositionError for an option that has no effect with the other options."""
    if args.name is not None and args.output is None:
        raise PositionError("--name: no effect without --output. Add --output, or remove --name.")
    compares = args.view == "lengths" or args.full or args.output is not None or args.baseline is not None
    for option, given in {"--test": args.test != RANDOMIZATION, "--samples": args.samples != SAMPLES}.items():
        if given and not compares:
            raise PositionError(
                f"{option}: no effect without --full, --output or --baseline. Add one of them, or remove {option}."
            )


def _require_options_of_lengths(args: argparse.Namespace) -> None:
    """Raise PositionError for an option that --view lengths does not use."""
    parser = argparse.ArgumentParser()
    configure(parser)
    defaults = vars(parser.parse_args(["RUNS"]))
    for name in sorted(defaults.keys() - {"runs", "view", "output", "name"}):
        if getattr(args, name) != defaults[name]:
            option = f"--{name.replace('_', '-')}"
            raise PositionError(f"{option}: no effect with --view lengths. Expected --output or --name. Remove {option}.")


def write(report: Report, folder: Path, name: str = "report", digits: int = 1) -> list[str]:
    """Write all files of the report. Return the file names."""
    from . import formats, plots, tables

    figures = plots.draw_plots(report)
    prefix = "" if name == "report" else f"{name}_"
    shown, below = tables.all_tables(report, digits), tables.notes(report, full=True)
    links = {figure: f"{prefix}{figure}.png" for figure in figures}
    files: dict[str, str | bytes] = {
        f"{name}.md": "# Report\n\n" + formats.compact(formats.markdown(shown, below, links)),
        f"{name}.tex": formats.latex(shown, below, name),
        f"{name}.csv": formats.csv_table(report),
        f"{name}.html": formats.html(shown, below, {figure: plot.svg for figure, plot in figures.items()}),
        **{f"{prefix}{figure}.svg": plot.svg for figure, plot in figures.items()},
        **{f"{prefix}{figure}.png": plot.png for figure, plot in figures.items()},
    }
    return write_files(folder, files)

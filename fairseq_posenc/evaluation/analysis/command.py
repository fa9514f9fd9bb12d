"""The command line of `posenc analyse`; torch and fairseq are imported when an analysis runs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...common.option_types import not_negative, positive, read_number

#: analysis -> its module, which has analyse(args, progress), and its help
ANALYSES = {
    "vectors": "how alike position vectors are, and whether position and order can be read off them (Wang and Chen 2020)",
    "reordering": "whether an encoder lets a moved word be found, and its place (Yang et al. 2019)",
    "identical": "attention between identical words: symmetry, translation invariance, locality (Wang et al. 2021)",
    "sinusoids": "products of sinusoids by distance, before and after a projection (Yan et al. 2019)",
    "moved": "how much a translation loses where a word of its source has moved (Yang et al. 2019)",
    "lengths": "BLEU and chrF by the length of the source (Neishi and Yoshinaga 2019)",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Analyse the positions of trained models: a table on the screen, and with --output also CSV and a plot."
    commands = parser.add_subparsers(dest="analysis", required=True, metavar="ANALYSIS")
    found = {name: commands.add_parser(name, help=text, description=_sentence(text)) for name, text in ANALYSES.items()}
    for name, command in found.items():
        if name != "sinusoids":
            command.add_argument("runs", nargs="+", type=Path, metavar="RUN|CHECKPOINT", help=_RUNS[name == "lengths"])
        command.add_argument("--output", type=Path, metavar="FOLDER", help="write the table as Markdown and CSV, and a plot")
        command.add_argument("--seed", type=not_negative, default=1, help="of all that is drawn at random (default: %(default)s)")
        if name not in ("sinusoids", "lengths"):
            command.add_argument("--data", metavar="FOLDER", help="binarised data, where it is no longer where it was")

    for name in ("vectors", "identical"):
        found[name].add_argument(
            "--length", type=positive, default={"vectors": 512, "identical": 64}[name], metavar="N",
            help="number of positions (default: %(default)s, or fewer where the model has fewer)",
        )  # fmt: skip
    found["vectors"].add_argument("--site", choices=("encoder", "decoder"), default="encoder", help="(default: %(default)s)")
    found["identical"].add_argument(
        "--words", type=positive, default=100, metavar="N", help="the most frequent ones (default: %(default)s)"
    )

    command = found["reordering"]
    command.add_argument(
        "--mode", choices=("frozen", "scratch"), default="frozen",
        help="train the output layer alone on the encoder of the translation, or also a new encoder (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--lr", type=_rate, help="learning rate (default: 1e-3 frozen, 1e-5 from scratch, as in the paper)")
    for option, default, meaning in (
        ("--updates", 1000, "at most so many updates"), ("--batch", 64, "sentences of an update"),
        ("--every", 100, "updates between validations; training ends when five in a row are no better"),
        ("--instances", 4, "moves of every test sentence"), ("--min-distance", 1, "words move at least so far"),
    ):  # fmt: skip
        command.add_argument(option, type=positive, default=default, metavar="N", help=f"{meaning} (default: %(default)s)")
    command.add_argument("--subset", default="test", help="part of the data to report on (default: %(default)s)")

    command = found["moved"]
    command.add_argument(
        "--subsets", nargs="+", default=["test"], metavar="SUBSET", help="parts of the data to translate (default: test)"
    )
    command.add_argument("--beam", type=positive, default=4, help="(default: %(default)s)")

    command = found["lengths"]
    command.add_argument("--parts", nargs="+", metavar="PART", help="test parts of score.json, taken together (default: all)")
    command.add_argument("--seen", type=positive, metavar="WORDS", help="longest training source: compare longer ones with it")
    command.add_argument(
        "--baseline", metavar="SPEC", help="the run that others are tested against (default: sinusoidal, else the first)"
    )

    command = found["sinusoids"]
    command.add_argument("--width", type=positive, default=512, help="channels (default: %(default)s)")
    command.add_argument("--distance", type=positive, default=50, metavar="N", help="largest distance (default: %(default)s)")
    command.add_argument("--grid", choices=("fairseq", "paper"), default="fairseq", help="frequencies (default: %(default)s)")


_RUNS = (
    "a checkpoint, or its folder, of which the best checkpoint is taken",
    "a folder with a score.json, or a checkpoint in it",
)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _rate(text: str) -> float:
    try:
        rate = read_number(text, float)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no learning rate; give a number between 0 and 1, such as 1e-3")
    return rate


def run(args: argparse.Namespace) -> int:
    from . import results

    if args.output:
        results.make_folder(args.output)  # before the work
    found = _analysis(args.analysis)(args)
    print(results.screen(found), end="")
    if args.output:
        print(f"{args.output}: {', '.join(results.write(found, args.output))}")
    return 0


def _analysis(name: str) -> Callable[[argparse.Namespace], Any]:
    return importlib.import_module(f".{name}", __package__).analyse

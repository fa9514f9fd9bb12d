"""The command line of `posenc analyse`. torch and fairseq are imported when an analysis runs."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from ...common.files import make_folder
from ...common.messages import shorten
from ...common.option_types import not_negative, positive, read_number
from ...core import PositionError
from ..scoring.score import TOKENS

#: name of an analysis and of its module -> (summary, description)
ANALYSES = {
    "vectors": (
        "similarity of position vectors",
        "Measure how similar the position vectors of a model are. "
        "Predict the absolute position from one vector, and the order of "
        "two positions from two vectors, and print the errors. Source: Wang and Chen (2020).",
    ),
    "reordering": (
        "detection of a moved word",
        "Train a classifier on the encoder states of sentences in which one word was moved. "
        "Print the accuracy of finding the word "
        "and its original position. Source: Yang et al. (2019).",
    ),
    "identical": (
        "attention between identical words",
        "Compute the attention of sentences that repeat one word, so that all differences come from positions. Print symmetry, "
        "translation invariance and monotonicity. Source: Wang et al. (2021).",
    ),
    "sinusoids": (
        "dot products of sinusoidal vectors by distance",
        "Compute the dot products of sinusoidal position vectors by distance, without and with a random projection. "
        "Source: Yan et al. (2019).",
    ),
    "moved": (
        "loss of BLEU for sources with a moved word",
        "Translate sources in which one word was moved, and print the loss of BLEU. Source: Yang et al. (2019).",
    ),
    "lengths": (
        "BLEU and chrF by source length",
        "Compute BLEU and chrF by source length, with a test against the baseline. Source: Neishi and Yoshinaga (2019).",
    ),
}


#: analyses without the option --seed. `identical` draws no random numbers. `lengths` uses the environment variable
#: SACREBLEU_SEED
_WITHOUT_SEED = {"identical", "lengths"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Analyse the positions of trained models. Print a table; with --output also write CSV and a plot."
    commands = parser.add_subparsers(dest="analysis", required=True, metavar="ANALYSIS")
    found = {name: commands.add_parser(name, help=short, description=text) for name, (short, text) in ANALYSES.items()}
    for name, command in found.items():
        if name != "sinusoids":
            command.add_argument("runs", nargs="+", type=Path, metavar="RUN|CHECKPOINT", help=_RUNS[name == "lengths"])
        command.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the table in Markdown and CSV, and a plot")
        if name not in _WITHOUT_SEED:
            command.add_argument(
                "--seed", type=not_negative, default=1, metavar="N", help="seed of all random numbers (default: %(default)s)"
            )
        if name not in ("sinusoids", "lengths"):
            command.add_argument(
                "--data", metavar="FOLDER", help="folder of the prepared data (default: the data folder of the training run)"
            )

    for name in ("vectors", "identical"):
        found[name].add_argument(
            "--length", type=positive, default={"vectors": 512, "identical": 64}[name], metavar="N",
            help="number of positions (default: %(default)s, or the maximum of the model if it is smaller)",
        )  # fmt: skip
    found["vectors"].add_argument("--site", choices=("encoder", "decoder"), default="encoder", help="site (default: %(default)s)")
    found["identical"].add_argument(
        "--words",
        type=positive,
        default=100,
        metavar="N",
        help="number of words: the N most frequent words of the dictionary. Each sentence repeats one word. All results are "
        "computed from the means of the scores and weights over these words (default: %(default)s)",
    )

    command = found["reordering"]
    command.add_argument(
        "--mode", choices=("frozen", "scratch"), default="frozen",
        help="frozen (train an output layer on the trained encoder) or scratch (train an output layer and a new "
        "encoder) (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--lr", type=_rate, metavar="RATE", help="learning rate (default: 1e-3 for frozen; 1e-5 for scratch, as in the paper)"
    )
    for option, default, meaning in (
        ("--updates", 1000, "maximum number of updates"), ("--batch", 64, "sentences per update"),
        ("--every", 100, "updates between validations. Training stops after five validations without improvement"),
        ("--instances", 4, "number of copies of each sentence. One word is moved in each copy"),
        ("--min-distance", 1, "minimum distance of a move, in tokens"),
    ):  # fmt: skip
        command.add_argument(option, type=positive, default=default, metavar="N", help=f"{meaning} (default: %(default)s)")
    command.add_argument(
        "--subset", default="test", metavar="NAME", help="name of the test data, as in the prepared data (default: %(default)s)"
    )

    command = found["moved"]
    command.add_argument(
        "--subsets", nargs="+", default=["test"], metavar="SUBSET", help="data sets to translate (default: test)"
    )
    command.add_argument(
        "--beam", type=positive, default=4, metavar="N",
        help="beam size (default: %(default)s). Non-autoregressive models ignore it",
    )  # fmt: skip
    command.add_argument(
        "--tokenize", choices=TOKENS, help="tokenizer of sacreBLEU for BLEU, such as zh (default: the default of sacreBLEU)"
    )

    command = found["lengths"]
    command.add_argument(
        "--parts",
        nargs="+",
        metavar="PART",
        help="test sets of score.json, whose sentences are combined (default: all test sets)",
    )
    command.add_argument(
        "--seen",
        type=positive,
        metavar="WORDS",
        help="length of the longest source sentence in the training data. The table then also contains the BLEU of longer "
        "sentences minus the BLEU of sentences up to this length",
    )
    command.add_argument("--baseline", metavar="SPEC", help="method of the baseline (default: sinusoidal, or else the first run)")

    command = found["sinusoids"]
    command.add_argument("--width", type=positive, default=512, metavar="N", help="number of channels (default: %(default)s)")
    command.add_argument("--distance", type=positive, default=50, metavar="N", help="largest distance (default: %(default)s)")
    command.add_argument(
        "--grid",
        choices=("fairseq", "paper"),
        default="fairseq",
        help="frequencies of fairseq or of the paper (default: %(default)s)",
    )


_RUNS = (
    "checkpoint, or a run folder. From a run folder with score.json and PART.out, the scored checkpoint is loaded. From other "
    "folders, checkpoint_best.pt or else checkpoint_last.pt is loaded",
    "folder with a score.json, or a checkpoint in this folder",
)


def _rate(text: str) -> float:
    try:
        rate = read_number(text, float)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a learning rate. Expected a number between 0 and 1, such as 1e-3")
    return rate


def run(args: argparse.Namespace) -> int:
    from . import results

    for option in ("parts", "subsets"):
        given = getattr(args, option, None) or []
        if twice := [name for number, name in enumerate(given) if name in given[:number]]:
            raise PositionError(
                f"--{option} {shorten(twice[0])}: given twice. Expected each test set once. Remove one of the two."
            )
    if args.output:
        make_folder(args.output)  # create the folder before the long computation, because creating a folder can fail
    found = importlib.import_module(f".{args.analysis}", __package__).analyse(args)
    print(results.screen(found), end="")
    if args.output:
        print(f"{args.output}: {', '.join(results.write(found, args.output))}")
    return 0

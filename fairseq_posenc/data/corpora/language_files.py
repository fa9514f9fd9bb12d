"""`posenc data language`: write the text files of the artificial language pair, optionally with trees and reorderings."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...common.files import make_folder, write_files
from ...common.option_types import not_negative, positive
from ...core import PositionError
from . import language_trees
from .language import LONG, MOST_WORDS, NORMAL, SIZES, SOURCE, TARGET, Lengths, drawn_splits, make_lexicon


def write(
    folder: Path, seed: int, sizes: dict[str, int] = SIZES, structure: bool = False, lengths: Lengths | None = None
) -> dict[str, list[tuple[str, str]]]:
    """Write FOLDER/PART.svo and FOLDER/PART.sov, one sentence per line.

    Return a mapping from part ("train", ...) to a list of sentence pairs (source, target).

    With `structure`, also write trees and reorderings: PART.svo.conllu, PART.svo.order and PART.svo.order.source.
    """
    drawn, lexicon = drawn_splits(seed, sizes, lengths), make_lexicon(seed)
    parts = {name: [(left, right) for _, left, right in part] for name, part in drawn.items()}
    make_folder(folder)
    for name, part in parts.items():
        sides = enumerate((SOURCE, TARGET))
        write_files(folder, {f"{name}.{language}": "".join(pair[side] + "\n" for pair in part) for side, language in sides})
        if structure:
            language_trees.write(folder / f"{name}.{SOURCE}", [sentence for sentence, _, _ in drawn[name]], lexicon)
    return parts


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the artificial language pair of the quickstart: svo (verb-second) to sov (verb-final)."
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the text files PART.svo and PART.sov")
    parser.add_argument("--structure", action="store_true", help="trees in PART.svo.conllu, and reorderings in PART.svo.order")
    parser.add_argument(
        "--seed", type=not_negative, default=1, metavar="N", help="seed of words and sentences (default: %(default)s)"
    )
    for name, size in SIZES.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=not_negative,
            default=size,
            metavar="N",
            help=f"number of sentences in {name} (default: {size})",
        )
    for option, lengths, parts in (("--words", NORMAL, "train, valid and test"), ("--long-words", LONG, "test_long")):
        parser.add_argument(
            option, type=positive, nargs=2, default=lengths, metavar=("LOW", "HIGH"),
            help=f"minimum and maximum sentence length of {parts}, in words (default: {lengths[0]} {lengths[1]})",
        )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    sizes = {name: getattr(args, name) for name in SIZES}
    for option, (low, high) in (("--words", args.words), ("--long-words", args.long_words)):
        if not low <= high <= MOST_WORDS:
            raise PositionError(
                f"{option} {low} {high}: not allowed. Expected the minimum and the maximum number of words, from 1 to "
                f"{MOST_WORDS}."
            )
    lengths = {name: tuple(args.long_words if name == "test_long" else args.words) for name in SIZES}
    parts = write(args.folder, args.seed, sizes, args.structure, lengths)
    for name, part in parts.items():
        words = [len(side.split()) for pair in part for side in pair] or [0]
        print(f"{name:<10}{len(part):>7} sentences of {min(words)} to {max(words)} words")
    if parts["test"]:
        shortest = min(parts["test"], key=lambda pair: len(pair[0]))
        print(f"for example: {shortest[0]}  ->  {shortest[1]}")
    return 0

"""`posenc concat`: join consecutive sentences of parallel text into documents, as test data or as training data.

Test data: one test set for each number of sentences per document. All test sets consist of the same lines, so that their scores
can be compared. Training data: one text whose documents have different numbers of sentences. The total number of input lines
in documents with k sentences is, on average, equal for all k. The division of training
input into documents depends only on the number of lines, --mix, --seed and --epoch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...common.files import replace_file
from ...common.messages import shorten
from ...common.option_types import integer
from ...core import PositionError
from ..side.files import RESERVED
from ..text import require_other_files
from .parallel import aligned, find

#: maximum of a number in the options --sentences, --mix and --epoch
_MOST = 1000
#: a group of consecutive lines: index of the first line, counted from 0, and number of lines
Group = tuple[int, int]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Join consecutive lines of parallel text into documents. With --sentences, write one test set per "
        "number: OUT.k1.LANGUAGE has 1 sentence per line, OUT.k2.LANGUAGE has 2, and so on. With --mix, write "
        "a training text OUT.LANGUAGE. Every text has a second file with the ending .lines. Each line of this file "
        "describes one document: the index of its first input line (from 1), and its number of input lines."
    )
    parser.add_argument("input", metavar="IN", help="text: IN.SOURCE and IN.TARGET, one sentence per line, plain or gzipped")
    parser.add_argument("output", metavar="OUT", help="prefix of the files to write")
    parser.add_argument("-s", "--source", required=True, metavar="LANGUAGE", help="source language, the ending of its file")
    parser.add_argument("-t", "--target", required=True, metavar="LANGUAGE", help="target language, the ending of its file")
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument(
        "--sentences", metavar="NUMBERS", help="numbers of sentences per line, such as 1-6, with one test set for each number"
    )
    kinds.add_argument(
        "--mix",
        metavar="NUMBERS",
        help="numbers of sentences per line, such as 1-2, for one text. The number of each line is drawn at random",
    )
    parser.add_argument(
        "--separator",
        default="<sep>",
        metavar="TOKEN",
        help="token between sentences. If TOKEN is empty, a blank separates them (default: %(default)s)",
    )
    parser.add_argument(
        "--lines", type=integer, metavar="N",
        help="number of input lines to use. With --sentences, N must be divisible by all NUMBERS (default: all lines; with "
        "--sentences, the largest allowed N)",
    )  # fmt: skip
    parser.add_argument(
        "--seed",
        type=integer,
        metavar="N",
        help="seed for --mix, at least 0. The seed determines the random division of the text into lines (default: 1)",
    )
    parser.add_argument(
        "--epoch",
        metavar="NUMBERS",
        help="training epochs for which --mix writes the text, such as 3 or 1-4. Each epoch has other documents (default: 1)",
    )


def run(args: argparse.Namespace) -> int:
    if args.source == args.target or "lines" in (args.source, args.target):
        raise PositionError(
            f"concat: --source {args.source} --target {args.target}: the output files would have equal names. Expected two "
            "different endings other than lines. Rename the input files."
        )
    files = [find(Path(f"{args.input}.{language}")) for language in (args.source, args.target)]
    numbers = _numbers(args.sentences or args.mix, "--sentences" if args.sentences else "--mix", 1)
    if args.sentences and (args.seed is not None or args.epoch is not None):
        raise PositionError("concat: --seed and --epoch are options of --mix. Expected --mix NUMBERS. Leave them out.")
    if args.separator != "".join(args.separator.split()):
        raise PositionError(f"concat: --separator {args.separator!r} contains a blank. Expected one token. Give another one.")
    if set(args.separator) & set("+,;") or args.separator in RESERVED:
        raise PositionError(
            f"concat: --separator {args.separator!r} is not allowed. Expected a token without + , ; that has no meaning in "
            "fairseq. Give another one."
        )
    prefixes = [args.output] if args.mix else [f"{args.output}.k{number}" for number in numbers]
    outputs = [Path(f"{prefix}.{ending}") for prefix in prefixes for ending in (args.source, args.target, "lines")]
    require_other_files(outputs, files, "Give another OUT.")
    rows = list(_rows(files, args.separator))
    if args.mix:
        _write_mix(args, rows, numbers)
    else:
        lines = _lines(args.lines, len(rows), math.lcm(*numbers), args.input)
        for number, prefix in zip(numbers, prefixes):
            groups = [(first, number) for first in range(0, lines, number)]
            _write(prefix, args, rows, groups)
    return 0


def _write_mix(args: argparse.Namespace, rows: list, numbers: list[int]) -> None:
    seed = 1 if args.seed is None else args.seed
    if seed < 0:
        raise PositionError(f"concat: --seed {seed} is not allowed. Expected a number of at least 0. Give another one.")
    lines = len(rows) if args.lines is None else args.lines
    if not max(numbers) <= lines <= len(rows):
        raise PositionError(
            f"concat: {args.input} has {len(rows)} lines, and --mix {args.mix} uses {lines}. "
            f"Expected from {max(numbers)} to {len(rows)} lines. Change --lines or --mix."
        )
    epochs = _numbers("1" if args.epoch is None else args.epoch, "--epoch", 0)
    _write(args.output, args, rows, [group for epoch in epochs for group in mixed(lines, numbers, seed, epoch)])


def mixed(lines: int, numbers: list[int], seed: int, epoch: int) -> Iterator[Group]:
    """Divide the lines into groups of consecutive lines, beginning at a random line. Each line is in one group.

    The number of lines of a group is drawn from `numbers`. The probability of the number k is proportional to 1/k. On average,
    all numbers therefore have equal shares of the lines. Two groups may have fewer lines than drawn: the group that ends with
    the last of the used lines, and the last drawn group.
    """
    draw = np.random.default_rng((seed, epoch))
    share = np.array([1 / number for number in numbers])
    begin, used = int(draw.integers(lines)), 0
    while used < lines:
        first = (begin + used) % lines
        room = min(lines - used, lines - first)  # no group continues from the last line to the first line
        number = min(int(draw.choice(numbers, p=share / share.sum())), room)
        yield first, number
        used += number


def _rows(files: list[Path], separator: str) -> Iterator[tuple[str, ...]]:
    """Yield the lines of both sides. Raise PositionError for an empty line, and for a line that contains the separator."""
    for number, row in enumerate(aligned(files), 1):
        for file, line in zip(files, row):
            if not line:
                raise PositionError(
                    f"{file}, line {number}: empty. Expected one sentence per line. Remove the line from all files."
                )
            if separator and separator in line:  # also within a word, because the separator is one subword
                raise PositionError(
                    f"{file}, line {number}: contains the separator {separator!r}. Expected text without it. "
                    "Give another --separator."
                )
        yield row


def _lines(given: int | None, there: int, multiple: int, name: str) -> int:
    """Return the number of lines that all test sets use.

    `given` is the value of --lines. `multiple` is the least common multiple of the numbers of sentences per document.

    Raise PositionError if `given` is not a multiple of `multiple`, or if the text has too few lines.
    """
    if there < multiple or (given is not None and given > there):
        wanted = multiple if given is None else given
        raise PositionError(f"concat: {name} has {there} lines. Expected at least {wanted}. Use fewer sentences or lines.")
    if given is None:
        return there // multiple * multiple
    if given < 1 or given % multiple:
        raise PositionError(
            f"concat: --lines {given} is not allowed. Expected a multiple of {multiple}, so that all test sets have the same "
            f"words. Give {max(given // multiple, 1) * multiple}."
        )
    return given


def _write(prefix: str, args: argparse.Namespace, rows: list, groups: list[Group]) -> None:
    between = f" {args.separator} " if args.separator else " "
    texts = {
        language: [between.join(row[side] for row in rows[first : first + number]) for first, number in groups]
        for side, language in enumerate((args.source, args.target))
    }
    texts["lines"] = [f"{first + 1}\t{number}" for first, number in groups]
    for ending, lines in texts.items():
        text = "".join(f"{line}\n" for line in lines)
        replace_file(Path(f"{prefix}.{ending}"), lambda path, text=text: _write_text(path, text))  # type: ignore[misc]


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _numbers(text: str, option: str, least: int) -> list[int]:
    """Parse numbers such as 3, 1-6 or 1,2,4."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdecimal() and least <= int(end) <= _MOST for end in ends) or int(ends[0]) > int(
            ends[1]
        ):
            raise PositionError(
                f"concat: {option} {shorten(text, 40)} is not allowed. Expected numbers from {least} to {_MOST}, as 1-6 or "
                "1,2,4. Correct the numbers."
            )
        found += range(int(ends[0]), int(ends[1]) + 1)
    if len(set(found)) < len(found):
        raise PositionError(f"concat: {option} {shorten(text, 40)} contains a number twice. Expected each once. Remove one.")
    return sorted(found)

"""`posenc side`: create side files from trees, word alignments or preorderers, and convert them to binary files."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...common.option_types import positive
from ...core import PositionError
from ...data.side.files import ROOTS, side_file
from ...data.side.words import SUBWORDS

SPLITS = ("train", "valid", "test")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Create and check side files: trees, graphs and reorderings of the source sentences."
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _configure_trees(actions.add_parser("trees", help="heads, relations and graphs from CoNLL-U"))
    _configure_parse(actions.add_parser("parse", help="CoNLL-U of a text, from a parser"))
    _configure_order(actions.add_parser("order", help="reorderings from word alignments or from a preorderer"))
    _configure_compare(actions.add_parser("compare", help="similarity of two files of reorderings"))
    _configure_binarise(actions.add_parser("binarise", help="binary side files next to the data of fairseq-preprocess"))


def run(args: argparse.Namespace) -> None:
    {"trees": _trees, "parse": _parse, "order": _order, "compare": _compare, "binarise": _binarise}[args.action](args)


def _workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="number of processes (default: %(default)s)")


def _roots(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--roots",
        choices=ROOTS,
        default="error",
        help="treatment of sentences with several roots: error, or first (attach all roots to the first root) (default: error)",
    )


# --- trees ---


def _configure_trees(parser: argparse.ArgumentParser) -> None:
    from ...data.side.conllu import EDGES

    parser.description = "Write TEXT.heads and TEXT.relations from a file in CoNLL-U format, plain or gzip."
    parser.add_argument("trees", type=Path, metavar="CONLLU", help="CoNLL-U file with one tree for each line of the text")
    parser.add_argument("text", type=Path, metavar="TEXT", help="text file, words separated by spaces")
    parser.add_argument("--write-text", action="store_true", help="write TEXT from the words of the trees, instead of reading it")
    parser.add_argument(
        "--edges",
        choices=EDGES,
        default="none",
        help="edges in TEXT.edges: basic (the tree as a graph), or enhanced (column 9 of CoNLL-U, DEPS) (default: none)",
    )
    _roots(parser)
    _workers(parser)


def _trees(args: argparse.Namespace) -> None:
    from ...data.side.trees import Job, convert

    job = Job(args.trees, args.text, args.write_text, args.edges, args.roots)
    count = convert(job, args.workers)
    print(f"{args.text}: {count} sentences with {', '.join(job.kinds)}")


def _configure_parse(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run a parser and write TEXT.conllu. The same command resumes after an interruption."
    parser.add_argument("text", type=Path, metavar="TEXT", help="text file, words separated by spaces")
    parser.add_argument(
        "--command",
        required=True,
        metavar="COMMAND",
        help="shell command that reads one tokenised sentence per line and writes CoNLL-U",
    )
    parser.add_argument(
        "--lines", type=positive, default=2000, metavar="N", help="sentences per call of the parser (default: %(default)s)"
    )
    _workers(parser)


def _parse(args: argparse.Namespace) -> None:
    from ...data.side.parsing import parse

    print(f"{parse(args.text, args.command, args.workers, args.lines)}: done")


# --- orders ---


def _configure_order(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write two files. TEXT.order contains the reordered sentences, as indices of the original words. "
        "TEXT.order.source names the origin of the reorderings: the preorderer, or word alignments."
    )
    parser.add_argument("text", type=Path, metavar="TEXT", help="source text, words separated by spaces")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--links",
        type=Path,
        metavar="FILE",
        help="file of word alignments with the target, such as 0-0 1-2. The reordering is then an oracle, because "
        "it depends on the target",
    )
    given.add_argument("--order", type=Path, metavar="FILE", help="file of reorderings from a preorderer, such as 0 2 1")
    parser.add_argument("--source", metavar="NAME", help="name of the preorderer of --order. Use the same name for all splits")


def _order(args: argparse.Namespace) -> None:
    from ...data.side.reorder import ORACLE, write_orders

    if args.order and not args.source:
        raise PositionError(
            "--order: --source is missing. Expected the name of the preorderer, the same for all splits. Add --source NAME."
        )
    if args.links and args.source:
        raise PositionError(f"--source: not allowed with --links, whose source is {ORACLE!r}. Remove --source.")
    report = write_orders(args.text, args.links or args.order, args.source)
    print(f"{side_file(args.text, 'order')}: {report}, compared with the order of the text")


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print Kendall's tau and the fuzzy reordering score, averaged over sentences."
    parser.add_argument("orders", type=Path, metavar="ORDER", help="file of reorderings")
    parser.add_argument("reference", type=Path, metavar="REFERENCE", help="file of reference reorderings")


def _compare(args: argparse.Namespace) -> None:
    from ...data.side.reorder import compare

    print(compare(args.orders, args.reference))


# --- binarise ---


def _configure_binarise(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check all side files of the given texts, and write them in binary form to the data of fairseq-preprocess. Side files "
        "contain the trees, graphs or reorderings of the source sentences."
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the prepared data: --destdir of fairseq-preprocess")
    parser.add_argument("-s", "--source-lang", required=True, metavar="LANG", help="source language")
    parser.add_argument("-t", "--target-lang", required=True, metavar="LANG", help="target language")
    for split in SPLITS:
        help = (
            f"prefix of the text PREFIX.LANG, which is not split into subwords. If the data has several parts "
            f"({split}, {split}1, ...), one prefix for each part, separated by commas"
        )
        parser.add_argument(f"--{split}pref", metavar="PREFIX", default="", help=help)
    parser.add_argument(
        "--subwords", choices=list(SUBWORDS), default="none", help="subword type of the prepared data (default: %(default)s)"
    )
    parser.add_argument(
        "--subwords-in",
        default="",
        metavar="SUFFIX",
        help="suffix in the file names of the text in subwords. With .sub and the prefix train, the file is train.sub.LANG",
    )
    parser.add_argument(
        "--relations",
        type=Path,
        metavar="FILE",
        help="file dict.relations.txt of earlier data. Relation labels keep the indices of this file (default: indices from the "
        "training data)",
    )
    parser.add_argument(
        "--min-count",
        type=positive,
        metavar="N",
        help="minimum frequency of a relation label in the training data. Labels with a lower frequency become "
        "unknown (default: 1)",
    )
    _roots(parser)
    _workers(parser)


def _binarise(args: argparse.Namespace) -> None:
    from .binarise import Part, binarise, text_prefix

    parts = []
    for split in SPLITS:
        for number, prefix in enumerate(filter(None, getattr(args, f"{split}pref").split(","))):
            text, subwords = (Path(f"{prefix}{suffix}.{args.source_lang}") for suffix in ("", args.subwords_in))
            name = f"{split}{number or ''}"
            parts.append(Part(name, text, subwords, text_prefix(args.data, name, args.source_lang, args.target_lang)))
    if not parts:
        raise PositionError("posenc side binarise: no text. Expected --trainpref, --validpref or --testpref.")
    binarise(parts, args.data, args.subwords, args.roots, args.relations, args.min_count, args.workers)

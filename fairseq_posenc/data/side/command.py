"""posenc side: side files from trees, alignments and preorderers, and their indexed form beside the data."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...common.option_types import positive
from ...core import PositionError
from .files import ROOTS, side_file
from .words import SUBWORDS

SPLITS = ("train", "valid", "test")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make what methods read beside the source sentences: trees, graphs and orders."
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _configure_trees(actions.add_parser("trees", help="heads, relations and graphs from CoNLL-U"))
    _configure_parse(actions.add_parser("parse", help="CoNLL-U of a text, by a parser of your own"))
    _configure_order(actions.add_parser("order", help="orders from word alignments, or from a preorderer's file"))
    _configure_compare(actions.add_parser("compare", help="how far one file of orders is from another"))
    _configure_binarise(actions.add_parser("binarise", help="index the side files beside the data of fairseq-preprocess"))


def run(args: argparse.Namespace) -> None:
    {"trees": _trees, "parse": _parse, "order": _order, "compare": _compare, "binarise": _binarise}[args.action](args)


def _workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="processes (default: %(default)s)")


def _roots(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--roots",
        choices=ROOTS,
        default="error",
        help="of several roots: refuse them, or hang them on the first (default: error)",
    )


# --- trees ---


def _configure_trees(parser: argparse.ArgumentParser) -> None:
    from .conllu import EDGES

    parser.description = "Write TEXT.heads and TEXT.relations of the trees in a file of CoNLL-U, which may be a gzip."
    parser.add_argument("trees", type=Path, help="the CoNLL-U, a sentence for every line of the text")
    parser.add_argument("text", type=Path, help="the text, words separated by blanks")
    parser.add_argument("--write-text", action="store_true", help="write the text too, of the words of the trees")
    parser.add_argument(
        "--edges", choices=EDGES, default="none", help="also TEXT.edges: the tree as a graph, or column 9 (default: none)"
    )
    _roots(parser)
    _workers(parser)


def _trees(args: argparse.Namespace) -> None:
    from .trees import Job, convert

    job = Job(args.trees, args.text, args.write_text, args.edges, args.roots)
    count = convert(job, args.workers)
    print(f"{args.text}: {count} sentences with {', '.join(job.kinds)}")


def _configure_parse(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write TEXT.conllu by a parser; after an interruption the same command goes on."
    parser.add_argument("text", type=Path, help="the text, words separated by blanks")
    parser.add_argument("--command", required=True, metavar="COMMAND", help="reads lines of words, writes CoNLL-U")
    parser.add_argument("--lines", type=positive, default=2000, metavar="N", help="sentences at a time (default: %(default)s)")
    _workers(parser)


def _parse(args: argparse.Namespace) -> None:
    from .parsing import parse

    print(f"{parse(args.text, args.command, args.workers, args.lines)}: done")


# --- orders ---


def _configure_order(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write TEXT.order, the word at every place of the reordered sentence, and TEXT.order.source."
    parser.add_argument("text", type=Path, help="the source text, words separated by blanks")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--links", type=Path, metavar="FILE", help="word alignments with the target, such as 0-0 1-2: an oracle")
    given.add_argument("--order", type=Path, metavar="FILE", help="orders of a preorderer, such as 0 2 1")
    parser.add_argument("--source", metavar="NAME", help="of --order: which preorderer; one for all parts of the data")


def _order(args: argparse.Namespace) -> None:
    from .reorder import ORACLE, write_orders

    if args.order and not args.source:
        raise PositionError(
            "--order needs --source NAME, the name of the preorderer, which must be one for all parts of the data"
        )
    if args.links and args.source:
        raise PositionError(f"--source belongs to --order; orders of --links are from {ORACLE!r}")
    report = write_orders(args.text, args.links or args.order, args.source)
    print(f"{side_file(args.text, 'order')}: {report}, beside the order of the text")


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Kendall's tau and the fuzzy reordering score of orders, as means over sentences."
    parser.add_argument("orders", type=Path)
    parser.add_argument("reference", type=Path)


def _compare(args: argparse.Namespace) -> None:
    from .reorder import compare

    print(compare(args.orders, args.reference))


# --- binarise ---


def _configure_binarise(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check all side files beside the given texts, and index them beside the data of fairseq-preprocess."
    parser.add_argument("data", type=Path, help="the --destdir of fairseq-preprocess")
    parser.add_argument("-s", "--source-lang", required=True)
    parser.add_argument("-t", "--target-lang", required=True)
    for split in SPLITS:
        help = f"the text in words is PREFIX.SOURCE; several, divided by commas, are {split}, {split}1, ..."
        parser.add_argument(f"--{split}pref", metavar="PREFIX", default="", help=help)
    parser.add_argument("--subwords", choices=list(SUBWORDS), default="none", help="how they are marked (default: %(default)s)")
    parser.add_argument(
        "--subwords-in", default="", metavar="SUFFIX", help="the text in subwords is PREFIXSUFFIX.SOURCE, as in .sub"
    )
    parser.add_argument("--relations", type=Path, metavar="FILE", help="a dict.relations.txt in place of the relations of train")
    parser.add_argument(
        "--min-count", type=positive, default=1, metavar="N", help="relations that are rarer in train are unknown (default: 1)"
    )
    _roots(parser)
    _workers(parser)


def _binarise(args: argparse.Namespace) -> None:
    from .binarise import Part, binarise

    pair, parts = f"{args.source_lang}-{args.target_lang}.{args.source_lang}", []
    for split in SPLITS:
        for number, prefix in enumerate(filter(None, getattr(args, f"{split}pref").split(","))):
            text, subwords = (Path(f"{prefix}{suffix}.{args.source_lang}") for suffix in ("", args.subwords_in))
            parts.append(Part(f"{split}{number or ''}", text, subwords, args.data / f"{split}{number or ''}.{pair}"))
    if not parts:
        raise PositionError("no text is given; name some by --trainpref, --validpref or --testpref")
    binarise(parts, args.data, args.subwords, args.roots, args.relations, args.min_count, args.workers)

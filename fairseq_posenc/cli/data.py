"""`posenc data NAME`: the text files of a corpus."""

from __future__ import annotations

import argparse

from ..data.corpora import language_files, multi30k, wmt18

#: name of a corpus -> its module, which has configure(parser) and run(args), and its help
CORPORA = {
    "language": (language_files, "write the artificial language pair of the quickstart"),
    "multi30k": (multi30k, "download Multi30k-uk or Multi30K as raw text"),
    "wmt18": (wmt18, "download WMT18 as raw text"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the text files of a corpus."
    corpora = parser.add_subparsers(required=True, metavar="NAME")
    for name, (module, summary) in CORPORA.items():
        corpus = corpora.add_parser(name, help=summary)
        module.configure(corpus)
        corpus.set_defaults(run=module.run)


def run(args: argparse.Namespace) -> int | None:
    return args.run(args)

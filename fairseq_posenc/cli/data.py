"""posenc data NAME: write the text files of a corpus."""

from __future__ import annotations

import argparse

from ..data.corpora import language_files, multi30k, parallel, wmt18

#: name of a corpus -> (module, help). The module has configure(parser) and run(args)
CORPORA = {
    "language": (language_files, "artificial language pair of the quickstart"),
    "multi30k": (multi30k, "Multi30K or Multi30k-uk: image captions"),
    "wmt18": (wmt18, "WMT18: news translation"),
    "parallel": (parallel, "check of your own parallel text"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the text files of a corpus. Downloads what is needed."
    corpora = parser.add_subparsers(required=True, metavar="NAME")
    for name, (module, summary) in CORPORA.items():
        corpus = corpora.add_parser(name, help=summary)
        module.configure(corpus)
        corpus.set_defaults(run=module.run)


def run(args: argparse.Namespace) -> int | None:
    return args.run(args)

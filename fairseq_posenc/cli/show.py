"""posenc show"""

from __future__ import annotations

import argparse

from .. import catalog, registry


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a method of posenc list")
    parser.add_argument("--bibtex", action="store_true", help="the citations alone")


def run(args: argparse.Namespace) -> None:
    for name in args.names:
        registry.card(name)
    print(catalog.cite(args.names) if args.bibtex else "\n".join(map(catalog.page, args.names)))

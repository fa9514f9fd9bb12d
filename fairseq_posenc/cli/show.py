"""posenc show"""

from __future__ import annotations

import argparse

from .. import registry
from ..common.option_types import print_json
from ..core import PositionError
from ..registry import catalog
from ..registry.architectures import PREFIX, beside_methods
from ..registry.completion import methods


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a method of posenc list").completer = methods
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--bibtex", action="store_true", help="the citations alone")
    forms.add_argument("--json", action="store_true", help="print an array of one object a method")


def run(args: argparse.Namespace) -> None:
    for name in args.names:
        architecture = PREFIX + name.removeprefix(PREFIX)
        if architecture in beside_methods():
            raise PositionError(f"{name} is an architecture, more than a method; for fairseq-train: --arch {architecture}")
        registry.card(name)
    if args.json:
        print_json([catalog.entry(name) for name in args.names])
    else:
        print(catalog.cite(args.names) if args.bibtex else "\n".join(map(catalog.page, args.names)))

"""posenc show: print the page of a method, or its citation."""

from __future__ import annotations

import argparse

from .. import registry
from ..common.option_types import print_json
from ..core import PositionError
from ..registry import catalog
from ..registry.architectures import PREFIX, beside_methods
from ..registry.completion import methods


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the equation, options, deviations from the paper and citation of methods."
    parser.add_argument("names", nargs="+", metavar="NAME", help="name of a method, as in posenc list").completer = methods
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--bibtex", action="store_true", help="citations only")
    forms.add_argument("--json", action="store_true", help="JSON output: an array with one object per method")


def run(args: argparse.Namespace) -> None:
    for name in args.names:
        architecture = PREFIX + name.removeprefix(PREFIX)
        if architecture in beside_methods():
            raise PositionError(
                f"{name}: this is an architecture. Expected a method. For fairseq-train, use --arch {architecture}."
            )
        registry.card(name)
    if args.json:
        print_json([catalog.entry(name) for name in args.names])
    else:
        print(catalog.cite(args.names) if args.bibtex else "\n".join(map(catalog.page, args.names)))

"""posenc list"""

from __future__ import annotations

import argparse

from ..common.option_types import positive, print_json
from ..core import SITES, Dims, PositionError
from ..registry import catalog
from ..registry.architectures import beside_methods

_FLAGS = ("learnable", "recurring", "unbound")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site", choices=SITES)
    parser.add_argument("--reference", choices=("absolute", "relative", "both", "none"))
    parser.add_argument("--injection", choices=("APE", "MAM", "other", "none"))
    for flag in _FLAGS:
        parser.add_argument(f"--{flag}", choices=("yes", "no"))
    parser.add_argument("--evidence", choices=("peer", "paper", "reconstruction"))
    for option, default in (("--embed-dim", 512), ("--heads", 8), ("--layers", 6), ("--max-positions", 1024)):
        parser.add_argument(option, type=positive, default=default, help="for the number of parameters (default: %(default)s)")
    parser.add_argument(
        "--columns",
        help=f"all, or a list (default: {','.join(catalog.SHORT)}; with --json, all); columns: {', '.join(catalog.COLUMNS)}",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--format", default="simple", choices=("simple", "github", "latex", "tsv"))
    forms.add_argument("--json", action="store_true", help="print an array of one object a method")


def run(args: argparse.Namespace) -> None:
    if args.embed_dim % args.heads:
        raise PositionError(f"--embed-dim {args.embed_dim} must be divisible by --heads {args.heads}")
    dims = Dims(args.embed_dim, args.heads, args.layers, args.max_positions, args.max_positions)
    flags = {flag: {"yes": True, "no": False}.get(getattr(args, flag)) for flag in _FLAGS}
    wanted = {"site": args.site, "reference": args.reference, "injection": args.injection, "evidence": args.evidence, **flags}
    chosen = args.columns or ("all" if args.json else ",".join(catalog.SHORT))
    columns = catalog.COLUMNS if chosen == "all" else tuple(chosen.split(","))
    found = catalog.rows(dims, columns, **wanted)
    if args.json:
        print_json(found)
    else:
        print(catalog.table(found, args.format))
        if args.format == "simple" and not any(value is not None for value in wanted.values()):
            print("\nArchitectures that are more than a method:", *beside_methods(), sep="\n  ")

"""posenc list: print a table of all methods."""

from __future__ import annotations

import argparse

from ..common.option_types import positive, print_json
from ..core import SITES, Dims, PositionError
from ..registry import catalog
from ..registry.architectures import beside_methods

_FLAGS = {
    "learnable": "methods with learned parameters, or without",
    "recurring": "positions act in every layer, not only at the input",
    "unbound": "yes: methods that are defined at every sentence length and do not clip distances. no: all other methods",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a table of all methods. Options select methods and columns."
    parser.add_argument("--site", choices=SITES, help="site at which the method is defined")
    parser.add_argument("--reference", choices=("absolute", "relative", "both", "none"), help="kind of positions")
    parser.add_argument(
        "--injection",
        choices=("APE", "MAM", "other", "none"),
        help="place of the positions: APE (added to the embeddings), MAM (in the attention matrix), other or none",
    )
    for flag, meaning in _FLAGS.items():
        parser.add_argument(f"--{flag}", choices=("yes", "no"), help=meaning)
    parser.add_argument(
        "--evidence",
        choices=("peer", "paper", "reconstruction"),
        help="basis of the implementation: peer (compared with a public implementation), paper (equations or authors' code) or "
        "reconstruction (full text of the paper not available)",
    )
    for option, default, meaning in (
        ("--embed-dim", 512, "embedding dimension"), ("--heads", 8, "attention heads"), ("--layers", 6, "layers"),
        ("--max-positions", 1024, "maximum sentence length, in tokens,"),
    ):  # fmt: skip
        parser.add_argument(
            option,
            type=positive,
            default=default,
            metavar="N",
            help=f"{meaning} of the model for which parameters are counted (default: {default})",
        )
    parser.add_argument(
        "--columns",
        metavar="LIST",
        help=f"all, or names separated by commas, from: {', '.join(catalog.COLUMNS)} "
        f"(default: {','.join(catalog.SHORT)}; with --json: all)",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--format", default="simple", choices=("simple", "github", "latex", "tsv"), help="table format (default: %(default)s)"
    )
    forms.add_argument("--json", action="store_true", help="JSON output: an array with one object per method")


def run(args: argparse.Namespace) -> None:
    if args.embed_dim % args.heads:
        raise PositionError(
            f"--embed-dim {args.embed_dim}: not divisible by --heads {args.heads}. Expected a multiple of the number of heads."
        )
    dims = Dims(args.embed_dim, args.heads, args.layers, args.max_positions, args.max_positions, vocab_size=catalog.VOCABULARY)
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

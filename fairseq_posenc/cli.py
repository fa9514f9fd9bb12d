"""The `posenc` command."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from . import catalog, registry
from .contract import SITES, Dims, PositionError
from .version import __version__

#: commands that live elsewhere: each module has configure(parser) and run(args)
_ELSEWHERE = {
    "language": ("fairseq_posenc.data.language", "write the artificial language pair of the quickstart"),
    "multi30k": ("fairseq_posenc.data.multi30k", "fetch Multi30k-uk or Multi30K as raw text"),
    "score": ("fairseq_posenc.report.score", "score what fairseq-generate printed, into score.json"),
    "report": ("fairseq_posenc.report.table", "show all runs side by side, from their score.json"),
    "bench": ("fairseq_posenc.bench.command", "what methods cost beside stock fairseq"),
    "average": ("fairseq_posenc.average", "average the parameters of checkpoints"),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; wrong input is one line on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="posenc", description="Position methods for fairseq's Transformer.")
    parser.add_argument("--version", action="version", version=f"posenc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _configure_list(commands.add_parser("list", help="all methods, or those that agree with the filters"))
    _configure_show(commands.add_parser("show", help="one method: equation, options, citation"))
    path = commands.add_parser("path", help="the folder to give to fairseq's --user-dir")
    path.set_defaults(run=lambda args: print(Path(__file__).parent))
    docs = commands.add_parser("docs", help="renew the method table in README.md and docs/methods.md")
    docs.add_argument("root", type=Path, help="the checkout")
    docs.set_defaults(run=lambda args: catalog.write_docs(args.root / "README.md", args.root / "docs" / "methods.md"))
    for name, (module, help) in _ELSEWHERE.items():
        command = commands.add_parser(name, help=help)
        found = importlib.import_module(module)
        found.configure(command)
        command.set_defaults(run=found.run)
    args = parser.parse_args(arguments)
    try:
        return args.run(args) or 0
    except PositionError as error:
        print(f"posenc: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # posenc list | head
        sys.stderr.close()
        return 0


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site", choices=SITES)
    parser.add_argument("--reference", choices=("absolute", "relative", "both", "none"))
    parser.add_argument("--injection", choices=("APE", "MAM", "other", "none"))
    for flag in ("learnable", "recurring", "unbound"):
        parser.add_argument(f"--{flag}", choices=("yes", "no"))
    parser.add_argument("--embed-dim", type=int, default=512, help="for the number of parameters (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="the same (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="the same (default: %(default)s)")
    parser.add_argument("--max-positions", type=int, default=1024, help="the same (default: %(default)s)")
    parser.add_argument("--format", default="simple", choices=("simple", "github", "latex", "tsv"))
    parser.set_defaults(run=_list)


def _list(args: argparse.Namespace) -> None:
    if args.heads < 1 or args.embed_dim < 1 or args.embed_dim % args.heads:
        raise PositionError(f"--embed-dim {args.embed_dim} must be divisible by --heads {args.heads}")
    dims = Dims(args.embed_dim, args.heads, args.layers, args.max_positions, args.max_positions)
    flags = {flag: {"yes": True, "no": False}.get(getattr(args, flag)) for flag in ("learnable", "recurring", "unbound")}
    wanted = {"site": args.site, "reference": args.reference, "injection": args.injection, **flags}
    print(catalog.table(dims, args.format, **wanted))


def _configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a method of posenc list")
    parser.add_argument("--bibtex", action="store_true", help="the citations alone")
    parser.set_defaults(run=_show)


def _show(args: argparse.Namespace) -> None:
    for name in args.names:
        registry.card(name)
    print(catalog.cite(args.names) if args.bibtex else "\n".join(map(catalog.page, args.names)))


if __name__ == "__main__":
    sys.exit(main())

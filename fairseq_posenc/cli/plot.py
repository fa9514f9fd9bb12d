"""posenc plot"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..common.option_types import not_negative, positive
from ..core import SITES, PositionError
from ..registry.completion import specs

#: positions beyond which a picture has no more to show
_LONGEST = 512


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draws what positions do to attention where every position has the same content: scores, weights of methods with a "
        "kernel of their own, or for positions that join the words, how alike their vectors are."
    )
    parser.add_argument(
        "sources", nargs="*", metavar="SPEC|RUN", help="a spec, or a checkpoint of ours or its folder"
    ).completer = specs
    parser.add_argument("--atlas", action="store_true", help="all methods side by side")
    parser.add_argument("--site", choices=SITES, help="(default: the first of the spec's authors; of a run, all)")
    parser.add_argument("--length", type=positive, default=32, help="number of positions (%(default)s)")
    parser.add_argument("--layer", type=not_negative, default=0, help="from 0 (%(default)s)")
    heads = parser.add_mutually_exclusive_group()
    heads.add_argument("--head", type=not_negative, help="one head, from 0 (default: the mean over heads)")
    heads.add_argument("--heads", action="store_true", help="every head by itself")
    parser.add_argument("--curves", action="store_true", help="also the row of one query, and the mean by distance")
    parser.add_argument("--query", type=not_negative, metavar="N", help="the query of --curves, from 0 (default: the middle one)")
    parser.add_argument(
        "--seed",
        type=not_negative,
        help="where learned parameters would change nothing yet, draw those that start constant at random",
    )
    parser.add_argument("--data", metavar="FOLDER", help="binarised data of a run, where it is no longer where it was")
    parser.add_argument(
        "--output", type=Path, default=Path("positions.png"), metavar="FILE", help="a .png, .svg or .pdf (%(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    if args.atlas == bool(args.sources):
        raise PositionError("give specs or runs to draw, as in: posenc plot rope t5, or --atlas alone for all methods")
    if not 2 <= args.length <= _LONGEST:
        raise PositionError(f"--length {args.length} is not allowed; it is from 2 to {_LONGEST}")
    if args.query is not None and not (args.curves and args.query < args.length):
        raise PositionError(f"--query {args.query} is the row of --curves, from 0 to {args.length - 1}")
    from ..plotting import figures, panels  # with torch

    figures.require_writable(args.output)
    if args.atlas:
        figures.write_atlas(panels.atlas(args.length), args.output)
    else:
        found = panels.of_sources(
            args.sources, args.length, site=args.site, layer=args.layer, head=args.head,
            every_head=args.heads, seed=args.seed, data=args.data,
        )  # fmt: skip
        figures.save(figures.draw(found, args.curves, args.query), args.output)
    print(f"wrote {args.output}")

"""posenc site: build the documentation as a web site. It can be opened from disk or from any web server."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core import PositionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build the documentation as a web site. The pages do not load anything from other hosts. The start "
        "page is OUT/index.html."
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="folder of the site, new or from an earlier call")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).parents[2],
        metavar="CHECKOUT",
        help="folder of the source code (default: the folder of this package)",
    )


def run(args: argparse.Namespace) -> int:
    from ..common.progress import Progress
    from .build import build

    if args.output.exists() and not args.output.is_dir():
        raise PositionError(f"{args.output}: this is a file. Expected a new or empty folder. Choose another name.")
    if args.output.is_dir() and any(args.output.iterdir()) and not (args.output / "index.html").is_file():
        raise PositionError(
            f"{args.output}: the folder contains other files than a site. Expected a new or empty folder. Choose another folder."
        )
    progress = Progress()
    number = build(args.root, args.output, progress)
    progress.end()
    print(f"{args.output}: {number} pages; open {args.output / 'index.html'}")
    return 0

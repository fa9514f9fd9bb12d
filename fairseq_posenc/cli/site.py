"""posenc site: build docs/ with Sphinx. This command is an earlier form of `python -m sphinx`."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from ..core import PositionError
from .docs import call


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build the documentation as a web site. The start page is OUT/index.html. "
        "This command is an earlier form of: python -m sphinx -W --keep-going CHECKOUT/docs OUT."
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="folder of the site")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).parents[2],
        metavar="CHECKOUT",
        help="folder of the source code (default: the folder of this package)",
    )


def run(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("sphinx") is None:
        raise PositionError("posenc site: Sphinx is not installed. Install it with pip install 'fairseq_posenc[site]'.")
    return call("site", args.root, "-m", "sphinx", "-W", "--keep-going", str(args.root / "docs"), str(args.output))

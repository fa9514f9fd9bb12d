"""posenc docs"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import registry
from ..core import PositionError
from ..registry import catalog
from ..site import claims, coverage
from . import COMMANDS, make_parser, reference

#: number of positions in docs/atlas.png
ATLAS_LENGTH = 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Regenerate docs/methods.md, docs/claims.md, docs/coverage.md, docs/reference/commands.md, the results in README.md, and "
        "docs/atlas.png."
    )
    parser.add_argument("root", type=Path, metavar="CHECKOUT", help="folder of the source code")


def run(args: argparse.Namespace) -> None:
    from ..evaluation.report import overview

    folder = args.root / "docs"
    if not folder.is_dir():
        raise PositionError(f"{folder}: no such folder. Expected a checkout with a folder docs. Example: posenc docs .")
    catalog.write_docs(folder / "methods.md")
    claims.write(args.root)
    coverage.write(args.root)
    overview.write(args.root)
    reference.write(folder / "reference" / "commands.md", reference.every(make_parser(*COMMANDS)))
    _renew_atlas(folder / "atlas.png")


def _renew_atlas(path: Path) -> None:
    """Draw the picture of all methods again if a method is missing."""
    from ..plotting import figures, panels

    if path.exists() and sorted(figures.methods_of_atlas(path)) != registry.names():
        figures.write_atlas(panels.atlas(ATLAS_LENGTH), path)

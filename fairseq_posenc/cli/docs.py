"""posenc docs"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import registry
from ..core import PositionError
from ..registry import catalog
from ..site import claims

#: number of positions in docs/atlas.png
ATLAS_LENGTH = 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=Path, help="the checkout")


def run(args: argparse.Namespace) -> None:
    from ..evaluation.report import overview

    folder = args.root / "docs"
    if not folder.is_dir():
        raise PositionError(f"{folder} is no folder; give the checkout, as in: posenc docs .")
    catalog.write_docs(folder / "methods.md")
    claims.write(args.root)
    overview.write(args.root)
    _renew_atlas(folder / "atlas.png")


def _renew_atlas(path: Path) -> None:
    """Draw the picture of all methods again if a method is missing in it."""
    from ..plotting import figures, panels

    if path.exists() and sorted(figures.methods_of_atlas(path)) != registry.names():
        figures.write_atlas(panels.atlas(ATLAS_LENGTH), path)

"""posenc docs"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core import PositionError
from ..registry import catalog
from ..site import claims


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

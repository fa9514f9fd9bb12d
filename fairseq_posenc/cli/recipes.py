"""posenc recipes: copy the recipes of this version, for installations without a checkout."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from ..common.files import unwritable
from ..core import PositionError

#: names that are not copied: recipes and files that need a checkout, and the cache of Python
_CHECKOUT_ONLY = ("setup", "test", "interpreter.py", "__pycache__")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Copy the recipes of this version to FOLDER/recipes. Run them from there with this installation."
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the copy; it is created if it does not exist")


def run(args: argparse.Namespace) -> None:
    copy = args.folder / "recipes"
    if copy.exists():
        raise PositionError(
            f"{copy}: this folder exists. Expected a new folder. Choose another name, or remove the folder {copy}."
        )
    try:
        shutil.copytree(source(), copy, ignore=shutil.ignore_patterns(*_CHECKOUT_ONLY))
    except OSError as error:
        raise PositionError(unwritable(copy, error)) from None
    print(f"{copy} is written. To run a recipe:")
    print(f"  POSENC_BIN={Path(sys.executable).parent} {copy}/quickstart")


def source() -> Path:
    """Return the folder of the recipes.

    In an installation of the wheel, this folder is in the package. In a checkout, this folder is next to the package.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "recipes", package.parent / "recipes"):
        if (folder / "quickstart").is_file():
            return folder
    raise PositionError(
        f"recipes: {package} was installed without them. Expected an installation of the wheel, or a checkout. "
        "Install fairseq_posenc again."
    )

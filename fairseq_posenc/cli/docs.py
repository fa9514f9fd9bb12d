"""posenc docs: an old command that runs docs/renew.py. The script replaces the command."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from ..core import PositionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Regenerate the committed pages of the documentation. This command is an earlier form of: python CHECKOUT/docs/renew.py."
    )
    parser.add_argument("root", type=Path, metavar="CHECKOUT", help="folder of the source code")


def run(args: argparse.Namespace) -> int:
    return call("docs", args.root, str(args.root / "docs" / "renew.py"))


def call(name: str, root: Path, *words: str) -> int:
    """Run Python with these arguments, and print the command that replaces `posenc NAME`.

    Raise PositionError outside of a checkout, because only a checkout has the folder docs.
    """
    if not (root / "docs" / "conf.py").is_file():
        raise PositionError(f"{root}: docs/conf.py is missing. Expected the folder of a checkout of the source code.")
    print(f"posenc {name}: replaced by python {shlex.join(words)}. The old name works in this version.", file=sys.stderr)
    return subprocess.run([sys.executable, *words]).returncode

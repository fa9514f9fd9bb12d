"""posenc new: the file of a method outside this package, and of its oracle, to fill in."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from string import Template

from .. import registry
from ..common.files import replace_file
from ..core import PositionError
from ..registry import external
from ..registry.declarations import RESERVED

_TEMPLATES = Path(__file__).with_name("templates")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write NAME.py, a method that runs as it is, and oracle_NAME.py, its equation as a plain loop. Change both to what your "
        f"paper says, then run posenc check NAME.py. With {external.VARIABLE}=NAME.py all commands and fairseq know the method."
    )
    parser.add_argument("name", metavar="NAME", help="small letters, digits and _, as in specs")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files go (default: here)")


def run(args: argparse.Namespace) -> None:
    name = args.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or RESERVED.fullmatch(name):
        raise PositionError(
            f"{name!r} is no name of a method: it has small letters, digits and _, begins with a letter, "
            "and does not end like a size of an architecture"
        )
    if name in registry.names():
        raise PositionError(f"there is a method {name!r} (posenc show {name}); choose another name")
    files = {file: args.folder / f"{prefix}{name}.py" for file, prefix in (("method", ""), ("oracle", "oracle_"))}
    for path in files.values():
        if path.exists():
            raise PositionError(f"{path} is there; choose another name or --folder, or remove it")
    if not args.folder.is_dir():
        raise PositionError(f"--folder {args.folder} is no folder")
    words = {"name": name, "title": name.replace("_", " ").capitalize(), "class_name": name.title().replace("_", "")}
    for file, path in files.items():
        template = Template((_TEMPLATES / f"{file}.txt").read_text(encoding="utf-8"))
        text = template.substitute(words)
        replace_file(path, lambda partial, text=text: partial.write_text(text, encoding="utf-8"))
    method = files["method"]
    print(f"{method} and {files['oracle']} are written. Change both, then:\n  posenc check {method}")
    print(f"  export {external.VARIABLE}={method.resolve()}")
    print(f"  posenc show {name}    # and fairseq-train ... --encoder-position {name}, or --arch posenc_{name}")

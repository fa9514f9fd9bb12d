"""posenc new: write the file of a new method, and the file of its oracle."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from string import Template

from .. import registry
from ..common.files import replace_file
from ..core import PositionError
from ..registry import external
from ..registry.declarations import PUBLIC, RESERVED

_TEMPLATES = Path(__file__).with_name("templates")
#: class names that are not allowed, because the written file contains them or cards can use them
_TAKEN = {*PUBLIC, "AttentionContext", "Literal", "Optional", "Options", "PositionMethod", "Tensor"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write NAME.py, a complete method, and oracle_NAME.py, a slow reference implementation. "
        "Change the equation in both files. "
        f"Then run posenc check NAME.py. Set {external.VARIABLE}=NAME.py to use the method in all commands and in fairseq."
    )
    parser.add_argument("name", metavar="NAME", help="name of the method: lower-case letters, digits and _")
    parser.add_argument(
        "--folder", type=Path, default=Path(), metavar="FOLDER", help="folder of the files (default: the current folder)"
    )


def run(args: argparse.Namespace) -> None:
    name = args.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or RESERVED.fullmatch(name):
        raise PositionError(
            f"{name!r}: not a valid name. Expected lower-case letters, digits and _, a letter at the start, "
            "and no size such as _tiny at the end. Choose another name."
        )
    class_name = name.title().replace("_", "")
    if keyword.iskeyword(class_name) or class_name in _TAKEN:
        raise PositionError(
            f"{name!r}: the name of the class would be {class_name}, which Python or this package uses. "
            "Expected another class name. Choose another name."
        )
    if name in registry.names():
        raise PositionError(
            f"{name!r}: this method exists. Expected a new name. For the existing method, run posenc show {name}."
        )
    files = {file: args.folder / f"{prefix}{name}.py" for file, prefix in (("method", ""), ("oracle", "oracle_"))}
    for path in files.values():
        if path.exists():
            raise PositionError(
                f"{path}: this file exists. Expected a new file. Choose another name or --folder, or remove the file."
            )
    if not args.folder.is_dir():
        raise PositionError(f"--folder {args.folder}: no such folder. Expected an existing folder. Create it first.")
    words = {"name": name, "title": name.replace("_", " ").capitalize(), "class_name": class_name}
    for file, path in files.items():
        template = Template((_TEMPLATES / f"{file}.txt").read_text(encoding="utf-8"))
        text = template.substitute(words)
        replace_file(path, lambda partial, text=text: partial.write_text(text, encoding="utf-8"))
    method = files["method"]
    print(f"{method} and {files['oracle']} written. Change the equation in both files. Then run:\n  posenc check {method}")
    print(f"  export {external.VARIABLE}={method.resolve()}")
    print(f"  posenc show {name}    # and fairseq-train ... --encoder-position {name}, or --arch posenc_{name}")

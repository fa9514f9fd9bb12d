"""Find the files of methods outside this package: files in POSENC_METHODS, and entry points of installed packages.

This module does not import torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from ..core import PositionError

#: environment variable that contains files and folders, separated as in PATH
VARIABLE = "POSENC_METHODS"
#: entry point group of modules or packages with methods
GROUP = "fairseq_posenc.methods"
#: in a folder, files with these prefixes are not method files
_NO_METHODS = ("_", "oracle_", "test_", "conftest", "setup")


@dataclass(frozen=True)
class Source:
    """A file that may contain methods."""

    path: Path
    module: str
    named: bool  # whether the user named this file, not only its folder. A named file must contain a method
    installed: bool = False  # True: `module` is the import name of an installed module


def sources() -> list[Source]:
    """Return all method files outside this package without duplicates. Raise PositionError for missing files."""
    found: dict[Path, Source] = {}
    named = (source for path in named_paths() for source in of_path(path))
    for source in (*named, *_of_entry_points()):
        found.setdefault(source.path, source)
    return list(found.values())


def named_paths() -> list[Path]:
    """Return the files and folders in POSENC_METHODS."""
    return [Path(entry) for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry]


def of_path(path: Path) -> list[Source]:
    """Return a method file, or all method files of a folder."""
    path = path.expanduser().resolve()
    if path.is_dir():
        return [_source(file, False) for file in sorted(path.glob("*.py")) if not file.name.startswith(_NO_METHODS)]
    if not path.is_file():
        raise PositionError(f"{VARIABLE}: {path}: no such file or folder. Expected a Python file or a folder of Python files.")
    if path.suffix != ".py":
        raise PositionError(f"{VARIABLE}: {path}: not a Python file. Expected a file name that ends with .py.")
    return [_source(path, True)]


def load(source: Source) -> ModuleType:
    """Import a file and return its module. Raise PositionError if the import fails."""
    try:
        if source.installed:
            return importlib.import_module(source.module)
        if source.module not in sys.modules:
            spec = importlib.util.spec_from_file_location(source.module, source.path)
            if spec is None or spec.loader is None:
                raise ImportError("not a Python file")
            sys.modules[source.module] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(sys.modules[source.module])
            except BaseException:
                del sys.modules[source.module]
                raise
        return sys.modules[source.module]
    except Exception as error:
        raise PositionError(
            f"{source.path}: the import failed ({type(error).__name__}: {' '.join(str(error).split())}). "
            "Expected a file that Python can import. Correct the file."
        ) from error


def files(source: Source) -> list[Path]:
    """Return the file of a method, and the files in the same folder that it imports. Imports of these files are followed, too."""
    found = [source.path]
    for path in found:  # the loop appends to this list
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            parts = {part for name in names for part in name.split(".")}
            others = (source.path.with_name(f"{part}.py") for part in sorted(parts) if part)
            found += [other for other in others if other not in found and other.is_file()]
    return found


def _source(path: Path, named: bool) -> Source:
    return Source(path, f"{path.stem}_{zlib.crc32(bytes(path)):08x}", named)


def _of_entry_points() -> Iterator[Source]:
    for entry in entry_points(group=GROUP):
        name = entry.value.partition(":")[0].strip()
        path = _path_of(name)
        if path is None:
            raise PositionError(
                f"entry point {entry.name} = {entry.value} of {GROUP}: the module {name} is not installed. "
                "Expected an installed module. Install the package again, or uninstall it."
            )
        if path.name != "__init__.py":
            yield Source(path, name, True, True)
            continue
        for file in sorted(path.parent.glob("*.py")):
            if not file.name.startswith(_NO_METHODS):
                yield Source(file, f"{name}.{file.stem}", False, True)


def _path_of(name: str) -> Path | None:
    """Return the file of a module without importing the module. Return None if the file does not exist."""
    first, *rest = name.split(".")
    spec = importlib.util.find_spec(first)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    for part in rest:
        folder = path.parent / part
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return path.resolve() if path.is_file() else None

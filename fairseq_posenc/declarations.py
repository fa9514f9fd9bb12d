"""Reads what a method file declares, its cards and options, without running the file: no torch is imported (no torch)."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional

from . import core
from .core import MethodCard, Options

_ROOT = Path(__file__).parent / "methods"


@dataclass(frozen=True)
class Declaration:
    """One method: its card, its options, its docstring, the family that its folder names, and where its class is."""

    card: MethodCard
    options: type
    docstring: str = field(repr=False)
    family: str
    module: str
    class_name: str

    def load(self) -> type:
        """The class itself."""
        return getattr(importlib.import_module(self.module), self.class_name)


class _Undeclared:
    """Stands for PositionMethod, so that what a class inherits is found."""

    Options = Options


@functools.cache
def declarations() -> dict[str, Declaration]:
    """Every method in methods/, by name."""
    found: dict[str, Declaration] = {}
    for path in sorted(_ROOT.glob("*/*.py")):
        module = ".".join((__package__, "methods", path.parent.name, path.stem))
        for node in _parse(path).body:
            cls = _read(path)[node.name] if isinstance(node, ast.ClassDef) else None
            if "card" in vars(cls or object):
                if cls.card.name in found:
                    raise RuntimeError(f"two methods are named {cls.card.name}")
                doc = inspect.cleandoc(cls.__doc__ or "")
                found[cls.card.name] = Declaration(cls.card, cls.Options, doc, path.parent.name, module, node.name)
    return dict(sorted(found.items()))


@functools.cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """The constants and classes of a file by name; of a method its docstring, options and card alone."""
    names = {name: getattr(core, name) for name in ("Dims", "MethodCard", "Options", "PositionError", "SideInput", "option")}
    names |= {"dataclass": dataclass, "Literal": Literal, "Optional": Optional, "PositionMethod": _Undeclared}
    names["__name__"] = __name__
    for node in _parse(path).body:
        if isinstance(node, ast.ImportFrom):
            names.update(_imported(node, path))
        elif isinstance(node, ast.ClassDef):
            _run(_declaration_of(node, names), path, names)
        elif isinstance(node, ast.Assign) and _is_literal(node.value):
            _run(node, path, names)
    return names


def _run(node: ast.stmt, path: Path, names: dict[str, Any]) -> None:
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), str(path), "exec"), names)


def _imported(node: ast.ImportFrom, path: Path) -> dict[str, Any]:
    """What a method file takes from another one: `from .rope import Rope`, `from ..relative.shaw import Shaw`."""
    if node.level not in (1, 2) or node.module is None:
        return {}
    folder = path.parents[node.level - 1]
    other = _read(folder.joinpath(*node.module.split(".")).with_suffix(".py"))
    return {alias.name: other[alias.name] for alias in node.names if alias.name in other}


def _declaration_of(node: ast.ClassDef, names: dict[str, Any]) -> ast.ClassDef:
    """A class of options as it is; of any other class its docstring, its options and its card."""
    if any(isinstance(name, ast.Name) and name.id == "dataclass" for call in node.decorator_list for name in ast.walk(call)):
        return node
    bases = [base for base in node.bases if isinstance(base, ast.Name) and isinstance(names.get(base.id), type)]
    kept = [item for item in node.body if _declares(item) or (item is node.body[0] and isinstance(item, ast.Expr))]
    return ast.ClassDef(node.name, bases, [], kept or [ast.Pass()], [])


def _declares(item: ast.stmt) -> bool:
    if isinstance(item, ast.ClassDef):
        return item.name == "Options"
    return isinstance(item, ast.Assign) and getattr(item.targets[0], "id", None) in ("Options", "card")


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True

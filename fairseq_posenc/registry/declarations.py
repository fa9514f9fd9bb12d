"""Reads what a method file declares, its cards and options, without running the file: no torch is imported (no torch)."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Optional, get_args, get_origin, get_type_hints

from .. import core
from ..core import SITES, Dims, MethodCard, MethodOptions, PositionError, renamed
from . import external

if TYPE_CHECKING:
    from ..core import PositionMethod

_ROOT = Path(__file__).parents[1] / "methods"
#: the name of this package
_PACKAGE = __package__.partition(".")[0]
#: the family of methods outside this package
EXTERNAL = "external"
#: names that would make two architectures of one name
RESERVED = re.compile(r"all|transformer.*|.*_(tiny|small|big)")


@dataclass(frozen=True)
class Declaration:
    """One method: its card, its options, its docstring, the family that its folder names, and where its class is."""

    card: MethodCard
    options: type
    docstring: str = field(repr=False)
    family: str
    module: str
    class_name: str
    source: external.Source | None = None  # of a method outside this package

    def load(self) -> type[PositionMethod]:
        """The class itself."""
        module = importlib.import_module(self.module) if self.source is None else external.load(self.source)
        return getattr(module, self.class_name)


class _Undeclared:
    """Stands for PositionMethod, so that what a class inherits is found."""

    Options = MethodOptions


@functools.cache
def declarations() -> dict[str, Declaration]:
    """Every method in methods/ and outside this package, by name; raises PositionError for files outside that are wrong."""
    found: dict[str, Declaration] = {}
    for path in sorted(_ROOT.glob("*/*.py")):
        module = ".".join((_PACKAGE, "methods", path.parent.name, path.stem))
        for own in _declared(path):
            if own.card.name in found:
                raise RuntimeError(f"two methods are named {own.card.name}")
            found[own.card.name] = dataclasses.replace(own, family=path.parent.name, module=module)
    for source in external.sources():
        for own in declared_by(source):
            other = found.setdefault(own.card.name, own)
            if other is not own:
                owner = "fairseq_posenc" if other.source is None else str(other.source.path)
                raise PositionError(f"{source.path}: the name {own.card.name!r} is taken by {owner}; give the card another name")
    return dict(sorted(found.items()))


def include(path: Path) -> list[str]:
    """Adds a file, or the files of a folder, to those of this process and its children; the names of their methods."""
    sources = external.of_path(path)
    if path.resolve() not in map(Path.resolve, map(Path, filter(None, os.environ.get(external.VARIABLE, "").split(os.pathsep)))):
        given = os.environ.get(external.VARIABLE)
        os.environ[external.VARIABLE] = os.pathsep.join([str(path.resolve()), *filter(None, [given])])
        declarations.cache_clear()
    declarations()  # refuses names that are taken
    return [own.card.name for source in sources for own in declared_by(source)]


def declared_by(source: external.Source) -> list[Declaration]:
    """The methods of a file outside this package; raises PositionError where it has none or a card is wrong."""
    found = [dataclasses.replace(own, module=source.module, source=source) for own in _declared(source.path)]
    if not found and source.named:
        raise PositionError(f"{source.path} holds no method: no class has a card; posenc new NAME writes a file to fill in")
    for own in found:
        wrong = _what_is_wrong(own)
        if wrong:
            raise PositionError(f"{source.path}: the card of {own.class_name} {wrong}")
    return found


def _declared(path: Path) -> Iterator[Declaration]:
    for node in _parse(path).body:
        if not isinstance(node, ast.ClassDef):
            continue
        cls = _read(path).get(node.name)
        if cls is not None and "card" in vars(cls):
            yield Declaration(cls.card, cls.Options, inspect.cleandoc(cls.__doc__ or ""), EXTERNAL, "", node.name)


def _what_is_wrong(own: Declaration) -> str:
    """What a card says that no card can say, or nothing; the checks of the contract find what is untrue."""
    card, hints = own.card, get_type_hints(MethodCard)
    for name in ("reference", "injection", "extrapolation", "evidence"):
        if getattr(card, name) not in get_args(hints[name]):
            return f"has {name}={getattr(card, name)!r}; it is one of {', '.join(get_args(hints[name]))}"
    for name, hint in hints.items():
        kind = get_origin(hint) or hint
        if isinstance(kind, type) and not isinstance(getattr(card, name), kind):
            return f"has {name}={getattr(card, name)!r}, which is no {kind.__name__}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", card.name):
        return f"has name={card.name!r}; a name has small letters, digits and _, and begins with a letter"
    if RESERVED.fullmatch(card.name):
        return f"has name={card.name!r}, which is kept for architectures; choose another name"
    if not card.sites or set(card.sites + card.extended_sites) - set(SITES):
        return f"has the sites {card.sites + card.extended_sites}; sites are {', '.join(SITES)}"
    try:
        card.count(own.options(), Dims(16, 4, 2, 8, 8))
    except Exception as error:
        return f"has parameters={card.parameters!r}, which cannot be evaluated: {error}; letters are in core/formula.py"
    return ""


@functools.cache
def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise PositionError(f"{path}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:  # no UTF-8, or null bytes
        raise PositionError(f"{path} is no Python file: {error}") from None


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """The constants and classes of a file by name; of a method its docstring, options and card alone."""
    public = ("Dims", "HeadOptions", "MethodCard", "MethodOptions", "PositionError", "SideInput", "option")
    names = {name: getattr(core, name) for name in public} | {"PositionMethod": _Undeclared}
    package = SimpleNamespace(**names, core=SimpleNamespace(**names))
    names |= {"dataclass": dataclass, "Literal": Literal, "Optional": Optional, "__name__": __name__}
    for node in _parse(path).body:
        if isinstance(node, ast.Import):
            names.update({name.asname or name.name: package for name in node.names if name.name == _PACKAGE})
        elif isinstance(node, ast.ImportFrom):
            names.update(_imported(node, path, names))
        elif isinstance(node, ast.ClassDef):
            _run(_declaration_of(node, names), path, names)
        elif isinstance(node, ast.Assign) and _is_literal(node.value):
            _run(node, path, names)
    return names


def _run(node: ast.stmt, path: Path, names: dict[str, Any]) -> None:
    try:
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), str(path), "exec"), names)
    except Exception as error:
        raise PositionError(
            f"{path}, line {node.lineno}: {error}; cards and options are read without running the file, so they hold literals"
        ) from error


def _imported(node: ast.ImportFrom, path: Path, names: dict[str, Any]) -> dict[str, Any]:
    """What a method file takes from another one: `from .rope import Rope`, `from fairseq_posenc.methods.bias.t5 import T5`."""
    if node.module is None:
        return {}
    if node.level in (1, 2):
        file = path.parents[node.level - 1].joinpath(*node.module.split(".")).with_suffix(".py")
    elif node.module in (_PACKAGE, f"{_PACKAGE}.core"):
        for alias in node.names:
            if alias.name in renamed.IMPORTED:
                raise PositionError(f"{path}, line {node.lineno}: {renamed.new_name(alias.name)}")
        return {alias.asname or alias.name: names[alias.name] for alias in node.names if alias.name in names}
    elif not node.level and node.module.startswith(f"{_PACKAGE}.methods."):
        file = _ROOT.parent.joinpath(*node.module.split(".")[1:]).with_suffix(".py")
    else:
        return {}
    other = _read(file) if file.is_file() else {}
    return {alias.asname or alias.name: other[alias.name] for alias in node.names if alias.name in other}


def _declaration_of(node: ast.ClassDef, names: dict[str, Any]) -> ast.ClassDef:
    """A class of options as it is; of any other class its docstring, its options and its card."""
    if any(isinstance(name, ast.Name) and name.id == "dataclass" for call in node.decorator_list for name in ast.walk(call)):
        return node
    bases = [base for base in node.bases if _is_class(base, names)]
    kept = [item for item in node.body if _declares(item) or (item is node.body[0] and isinstance(item, ast.Expr))]
    return ast.copy_location(ast.ClassDef(node.name, bases, [], kept or [ast.Pass()], []), node)


def _is_class(node: ast.expr, names: dict[str, Any]) -> bool:
    """Whether a base is known here: a name, or an attribute of this package."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and isinstance(getattr(names.get(node.value.id), node.attr, None), type)
    return isinstance(node, ast.Name) and isinstance(names.get(node.id), type)


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

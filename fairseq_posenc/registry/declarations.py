"""Read the cards and options of method files without running the files. This module does not import torch."""

from __future__ import annotations

import ast
import contextlib
import copy
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
from ..common.files import read_text
from ..core import SITES, Dims, MethodCard, MethodOptions, PositionError, SideInput
from . import external
from .literals import NotLiteral, Unread, is_docstring, require_class

if TYPE_CHECKING:
    from ..core import PositionMethod

_ROOT = Path(__file__).parents[1] / "methods"
#: name of this package
_PACKAGE = __package__.partition(".")[0]
#: family of all methods outside this package
EXTERNAL = "external"
_LARGEST_FILE = 2**20  # maximum number of bytes of a method file
_LONGEST_TEXT = 2000  # maximum number of characters of a text on a card
#: method names that are not allowed. `all` is a special word of posenc check. For all other names of this pattern,
#: posenc_NAME could also be the name of another architecture
RESERVED = re.compile(r"all|transformer.*|.*_(tiny|small|big)")


@dataclass(frozen=True)
class Declaration:
    """What is known about a method without importing it: card, options, docstring, family, and the location of its class.

    The family is the name of the folder of the method. For a method outside this package, the family is "external".
    """

    card: MethodCard
    options: type
    docstring: str = field(repr=False)
    family: str
    module: str
    class_name: str
    source: external.Source | None = None  # only for a method outside this package

    def load(self) -> type[PositionMethod]:
        """Import and return the class of the method."""
        module = importlib.import_module(self.module) if self.source is None else external.load(self.source)
        return getattr(module, self.class_name)


class _Undeclared:
    """The base class that replaces PositionMethod while a method file is read. PositionMethod itself requires torch.

    A method that does not define `Options` inherits `Options` from this class.
    """

    Options = MethodOptions


@functools.cache
def declarations() -> dict[str, Declaration]:
    """Return a mapping from name to declaration, for the methods of this package and the methods outside this package.

    Raise PositionError if a file outside this package has an error.
    """
    found: dict[str, Declaration] = {}
    for path in sorted(_ROOT.glob("*/*.py")):
        module = ".".join((_PACKAGE, "methods", path.parent.name, path.stem))
        for own in _declared(path):
            if own.card.name in found:
                raise RuntimeError(f"two methods have the name {own.card.name}")
            found[own.card.name] = dataclasses.replace(own, family=path.parent.name, module=module)
    for source in external.sources():
        for own in declared_by(source):
            other = found.setdefault(own.card.name, own)
            if other is not own:
                owner = "fairseq_posenc" if other.source is None else str(other.source.path)
                raise PositionError(
                    f"{source.path}: {owner} has a method {own.card.name!r} already. Expected a new name. "
                    "Change name= on the card."
                )
    return dict(sorted(found.items()))


def include(path: Path) -> list[str]:
    """Add a method file, or all method files of a folder, for this process and its children. Return the names of the methods."""
    sources = external.of_path(path)
    if path.resolve() not in map(Path.resolve, external.named_paths()):
        given = os.environ.get(external.VARIABLE)
        os.environ[external.VARIABLE] = os.pathsep.join([str(path.resolve()), *filter(None, [given])])
        declarations.cache_clear()
    declarations()  # raises an error if a name already exists
    return [own.card.name for source in sources for own in declared_by(source)]


def named_files() -> str | None:
    """Return the value of POSENC_METHODS. Pass this value to `name_files` in another process."""
    return os.environ.get(external.VARIABLE)


def name_files(value: str | None) -> None:
    """Set POSENC_METHODS in a new process.

    New processes of Python's fork server have the environment of the fork server. If the variable changed after the start of the
    fork server, this environment does not contain the change.
    """
    if value != named_files():
        os.environ.pop(external.VARIABLE, None)
        if value is not None:
            os.environ[external.VARIABLE] = value
        declarations.cache_clear()


def declared_by(source: external.Source) -> list[Declaration]:
    """Return the methods of a file outside this package.

    Raise PositionError if a card is wrong. Also raise PositionError if the user named the file and the file contains no method.
    """
    found = [dataclasses.replace(own, module=source.module, source=source) for own in _declared(source.path)]
    if not found and source.named:
        raise PositionError(
            f"{source.path}: no method found. Expected a class with a card. For a file to complete, run posenc new NAME."
        )
    for own in found:
        wrong = _what_is_wrong(own)
        if wrong:
            raise PositionError(f"{source.path}: card of {own.class_name}: {wrong}. Change the card.")
    return found


def _declared(path: Path) -> Iterator[Declaration]:
    for node in _parse(path).body:
        if not isinstance(node, ast.ClassDef):
            continue
        cls = _read(path).get(node.name)
        if cls is not None and "card" in vars(cls):
            yield Declaration(cls.card, cls.Options, inspect.cleandoc(cls.__doc__ or ""), EXTERNAL, "", node.name)


def _what_is_wrong(own: Declaration) -> str:
    """Return a description of the first value of a card that is not allowed. Return an empty string if all are allowed.

    The contract tests check whether allowed values are true for the method.
    """
    card, hints = own.card, get_type_hints(MethodCard)
    for name in ("reference", "injection", "extrapolation", "evidence"):
        if getattr(card, name) not in get_args(hints[name]):
            return f"{name}={getattr(card, name)!r} is not allowed. Expected one of {', '.join(get_args(hints[name]))}"
    for name in ("title", "survey", "survey_parameters", "parameters"):
        text = getattr(card, name)
        if isinstance(text, str) and not (len(text) <= _LONGEST_TEXT and text.isprintable()):
            return f"{name} is too long or not printable. Expected one line of at most {_LONGEST_TEXT} printable characters"
    for name, kind in (("citations", str), ("sites", str), ("extended_sites", str), ("losses", str), ("side_inputs", SideInput)):
        value = getattr(card, name)
        if isinstance(value, tuple) and not all(isinstance(item, kind) for item in value):
            return f"{name}={value!r} is not allowed. Expected a tuple of {kind.__name__}"
    for name, hint in hints.items():
        kind = get_origin(hint) or hint
        if isinstance(kind, type) and not isinstance(getattr(card, name), kind):
            return f"{name}={getattr(card, name)!r} is not allowed. Expected a value of type {kind.__name__}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", card.name):
        return f"name={card.name!r} is not allowed. Expected lower-case letters, digits and _, with a letter at the start"
    if RESERVED.fullmatch(card.name):
        return f"name={card.name!r} is reserved for architectures. Expected another name"
    if not card.sites or set(card.sites + card.extended_sites) - set(SITES):
        return f"sites {card.sites + card.extended_sites} are not allowed. Expected one or more of {', '.join(SITES)}"
    try:
        card.count(own.options(), Dims(16, 4, 2, 8, 8))
    except Exception as error:
        return f"parameters={card.parameters!r} cannot be evaluated ({error}). Expected a formula as described in core/formula.py"
    return ""


@functools.cache
def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path, largest=_LARGEST_FILE))
    except SyntaxError as error:
        raise PositionError(f"{path}, line {error.lineno}: {error.msg}. Expected valid Python. Correct this line.") from None
    except (RecursionError, MemoryError):
        raise PositionError(f"{path}: expressions are nested too deeply. Expected a method file. Simplify it.") from None
    except PositionError:
        raise
    except ValueError as error:  # null bytes
        raise PositionError(f"{path}: not a Python file ({error}). Expected a method file in Python.") from None


#: names of fairseq_posenc.core that a card can use
PUBLIC = ("Dims", "HeadOptions", "MethodCard", "MethodOptions", "PositionError", "SideInput", "option")


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """Return a mapping from name to value, for the constants and classes of a file.

    The returned class of a method has only the docstring, the options and the card of the method.
    """
    names = {name: getattr(core, name) for name in PUBLIC} | {"PositionMethod": _Undeclared}
    package = SimpleNamespace(**names, core=SimpleNamespace(**names))
    names |= {
        "dataclass": dataclass,
        "replace": dataclasses.replace,
        "Literal": Literal,
        "Optional": Optional,
        "__name__": __name__,
    }
    reserved = frozenset(names)
    for node in _parse(path).body:
        if isinstance(node, ast.Import):
            names.update({name.asname or name.name: package for name in node.names if name.name == _PACKAGE})
        elif isinstance(node, ast.ImportFrom):
            names.update(_imported(node, path, names))
        elif isinstance(node, ast.ClassDef):
            _read_class(node, path, names, reserved)
        elif isinstance(node, ast.Assign):
            with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # not a literal
                value = ast.literal_eval(node.value)
                found = (item for target in node.targets for item in _assigned(target, value))
                # a method file must not redefine the names that cards can use
                names.update((name, item) for name, item in found if name not in reserved and not name.startswith("__"))
    return names


def _assigned(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of an assignment of literals such as A = 1 or A, B = 1, 2. Skip assignments to attributes and items."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, (tuple, list)) and len(target.elts) == len(value):
        for inner, item in zip(target.elts, value):
            yield from _assigned(inner, item)


def _read_class(node: ast.ClassDef, path: Path, names: dict[str, Any], reserved: frozenset[str]) -> None:
    """Add a class to `names`, unless reading the class would run code.

    If reading a class with a card would run code, raise PositionError. If reading a class without a card would run code, add a
    placeholder (`Unread`). The placeholder raises an error when a card uses it.
    """
    kept = _declaration_of(node, names)
    try:
        if not _is_own(path):  # functions of an options class, such as __post_init__, must not run while the file is read
            kept = _without_functions(kept)
        if node.name in reserved and not _is_own(path):
            raise NotLiteral(node, f"the class {node.name!r} has the same name as a class of this package")
        require_class(_without_functions(kept), names)
    except NotLiteral as error:
        if any(isinstance(item, ast.Assign) and _names(item, "card") for item in kept.body):
            raise PositionError(_unread(path, error.line or node.lineno, error)) from None
        names[node.name] = Unread(error)
        return
    try:
        exec(compile(ast.fix_missing_locations(ast.Module([kept], [])), str(path), "exec"), names)
    except Exception as error:
        raise PositionError(_unread(path, node.lineno, error)) from error


def _unread(path: Path, line: int, error: Exception) -> str:
    return f"{path}, line {line}: {error}. Cards and options are read without running the file."


def _is_own(path: Path) -> bool:
    return _ROOT in path.parents


def _without_functions(node: ast.ClassDef) -> ast.ClassDef:
    """Return a copy of the syntax tree of a class without the functions of the class and of its inner classes."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = [_without_functions(item) if isinstance(item, ast.ClassDef) else item for item in node.body]
    own = copy.copy(node)
    own.body = [item for item in body if not isinstance(item, functions)] or [ast.Pass()]
    return own


def _imported(node: ast.ImportFrom, path: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping from name to value, for the known names that an import statement imports.

    Examples: `from .rope import Rope`, `from fairseq_posenc.core import MethodCard`.
    """
    if node.module is None:
        return {}
    if node.level in (1, 2):
        file = path.parents[node.level - 1].joinpath(*node.module.split(".")).with_suffix(".py")
    elif node.module in (_PACKAGE, f"{_PACKAGE}.core"):
        return {alias.asname or alias.name: names[alias.name] for alias in node.names if alias.name in names}
    elif not node.level and node.module.startswith(f"{_PACKAGE}.methods."):
        file = _ROOT.parent.joinpath(*node.module.split(".")[1:]).with_suffix(".py")
    else:
        return {}
    other = _read(file) if file.is_file() else {}
    return {alias.asname or alias.name: other[alias.name] for alias in node.names if alias.name in other}


def _declaration_of(node: ast.ClassDef, names: dict[str, Any]) -> ast.ClassDef:
    """Return an options class unchanged. Reduce other classes to docstring, options and card."""
    if any(isinstance(name, ast.Name) and name.id == "dataclass" for call in node.decorator_list for name in ast.walk(call)):
        return node
    bases = [base for base in node.bases if _is_class(base, names)]
    kept = [item for item in node.body if _declares(item) or (item is node.body[0] and is_docstring(item))]
    own = copy.copy(node)
    vars(own).update(bases=bases, keywords=[], body=kept or [ast.Pass()], decorator_list=[], type_params=[])
    return own


def _is_class(node: ast.expr, names: dict[str, Any]) -> bool:
    """Return whether a base class is known: by its name in this file, or as an attribute of this package."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and isinstance(getattr(names.get(node.value.id), node.attr, None), type)
    return isinstance(node, ast.Name) and isinstance(names.get(node.id), (type, Unread))


def _declares(item: ast.stmt) -> bool:
    if isinstance(item, ast.ClassDef):
        return item.name == "Options"
    return isinstance(item, ast.Assign) and _names(item, "Options", "card")


def _names(item: ast.Assign, *wanted: str) -> bool:
    return any(getattr(target, "id", None) in wanted for target in item.targets)

"""Check that cards and options consist of literals, so that they can be read without running the file."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ..core import Dims, MethodCard, SideInput, option

#: classes and functions that a card or an option may call
_CALLS = (MethodCard, SideInput, Dims, option, replace)
_TYPES = ("int", "float", "str", "bool")
_WORDS = "literals, MethodCard(...), replace(CLASS.card, ...), SideInput(...) and option(...)"


class NotLiteral(ValueError):
    """Raised for an expression or statement that would run code, in line `line` of the file."""

    def __init__(self, node: ast.AST, problem: str):
        super().__init__(f"{problem}. Expected {_WORDS}")
        self.line = getattr(node, "lineno", 0)


class Unread:
    """A placeholder for a class that cannot be read. Any use of the placeholder in a card raises the exception `reason`."""

    def __init__(self, reason: NotLiteral):
        self.reason = reason


def require_value(node: ast.expr, names: Mapping[str, Any]) -> None:
    """Raise NotLiteral unless the expression is allowed.

    Allowed expressions are literals, CLASS.card, CLASS.Options, names of constants and names of options classes. Calls of the
    classes and functions in `_CALLS` are also allowed.
    """
    if isinstance(node, ast.Constant):
        return
    if isinstance(node, (ast.Tuple, ast.List)):
        return _all(node.elts, names)
    if isinstance(node, ast.Dict) and None not in node.keys:  # {**other}
        return _all([*(key for key in node.keys if key is not None), *node.values], names)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)) and _is_number(node.operand):
        return
    if isinstance(node, ast.Name) and is_literal_value(_known(node, names)):
        return
    if isinstance(node, ast.Attribute) and node.attr in ("Options", "card") and isinstance(_resolve(node.value, names), type):
        return
    if isinstance(node, ast.Name) and isinstance(_known(node, names), type) and hasattr(names[node.id], "__dataclass_fields__"):
        return  # Options = OtherOptions
    if isinstance(node, ast.Call):
        if not any(_resolve(node.func, names) is allowed for allowed in _CALLS):
            raise NotLiteral(node, f"{_text(node.func)}(...) would be called")
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotLiteral(node, "** is not a literal")
        return _all([*node.args, *(keyword.value for keyword in node.keywords)], names)
    raise NotLiteral(node, f"{_text(node)} is not a literal")


def require_class(node: ast.ClassDef, names: Mapping[str, Any]) -> None:
    """Raise NotLiteral unless the class contains only allowed statements.

    A class may contain a docstring, `pass`, option fields, inner classes, and assignments of expressions that `require_value`
    allows. Inner classes must satisfy the same conditions. The only allowed decorator is `dataclass`. Every base class must be
    defined or imported in the file of the class.
    """
    if node.keywords:
        raise NotLiteral(node, f"class {node.name} has keywords")
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not ((isinstance(call, ast.Name) and call.id == "dataclass") or _text(call) == "dataclasses.dataclass"):
            raise NotLiteral(decorator, f"the decorator {_text(decorator)} would be called")
        if isinstance(decorator, ast.Call):
            if decorator.args or any(keyword.arg is None for keyword in decorator.keywords):
                raise NotLiteral(decorator, f"{_text(decorator)} has other arguments than dataclass(frozen=True)")
            _all([keyword.value for keyword in decorator.keywords], {})
    for base in node.bases:
        if not isinstance(_resolve(base, names), type):
            raise NotLiteral(base, f"the base class {_text(base)} is unknown in this file")
    for item in node.body:
        if isinstance(item, ast.ClassDef):
            require_class(item, names)
        elif isinstance(item, (ast.Assign, ast.AnnAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if not all(isinstance(target, ast.Name) and not target.id.startswith("__") for target in targets):
                raise NotLiteral(item, f"{_text(item)} does not assign to a plain name")
            if isinstance(item, ast.AnnAssign):
                _require_annotation(item.annotation)
            if item.value is not None:
                require_value(item.value, names)
        elif not isinstance(item, ast.Pass) and not is_docstring(item):
            raise NotLiteral(item, f"{_text(item)} would run")


def is_docstring(item: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)


def is_literal_value(value: Any) -> bool:
    """Return whether a value is a literal, a card, a side input, or a container of these values."""
    if isinstance(value, (tuple, list)):
        return all(map(is_literal_value, value))
    if isinstance(value, dict):
        return all(map(is_literal_value, (*value, *value.values())))
    return value is None or type(value) in (int, float, str, bool, MethodCard, SideInput)


def _require_annotation(node: ast.expr) -> None:
    """Raise NotLiteral unless the annotation consists of int, float, str, bool, None, Literal, Optional, tuple and unions."""
    if isinstance(node, ast.Name) and node.id in _TYPES:
        return
    if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        _require_annotation(node.left)
        return _require_annotation(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            if all(isinstance(item, ast.Constant) for item in inner):
                return None
        elif node.value.id in ("Optional", "tuple"):
            for item in inner:
                _require_annotation(item)
            return None
    raise NotLiteral(node, f"the type {_text(node)} is not one of {', '.join(_TYPES)}, Literal[...] and Optional[...]")


def _all(nodes: list[ast.expr], names: Mapping[str, Any]) -> None:
    for node in nodes:
        require_value(node, names)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _known(node: ast.Name, names: Mapping[str, Any]) -> Any:
    """Return the value of a name. Raise NotLiteral if the file does not define the name by a literal, a class or an import."""
    if node.id.startswith("__") or node.id not in names:
        raise NotLiteral(node, f"the name {node.id} is not defined by a literal")
    return _resolve(node, names)


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a dotted name, or None for other expressions and unknown names."""
    if isinstance(node, ast.Name):
        if isinstance(names.get(node.id), Unread):
            raise names[node.id].reason
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, names)
        if isinstance(owner, SimpleNamespace) or (isinstance(owner, type) and node.attr in ("Options", "card")):
            return getattr(owner, node.attr, None)
    return None


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return repr(text if len(text) <= 60 else f"{text[:59]}…")

"""Replace `eval` in fairseq: only literals and simple arithmetic are evaluated.

fairseq calls `eval` for options such as --adam-betas "(0.9, 0.98)". When a model is loaded, these options come from its
checkpoint. torch's safe loader (weights_only=True) accepts any text. `eval` would run code that the text contains.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .wrappers import wrapper

#: packages in which `eval` is replaced: fairseq, and the examples of a checkout of fairseq
_PACKAGES = ("fairseq", "examples")

_LONGEST_TEXT = 20_000  # maximum number of characters
_LARGEST_INTEGER = 2**63  # maximum absolute value
_MOST_ITEMS = 10_000  # maximum number of items of a list, including nested items and the characters of strings

_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_}
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def evaluate(text: str) -> Any:
    """Evaluate literals, containers of literals, arithmetic on small numbers, and repetitions such as `[(512, 3)] * 20`.

    Raise SystemExit for other expressions. Like `eval`, raise TypeError for values that are not text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected text, got {type(text).__name__}")
    try:
        if len(text) > _LONGEST_TEXT:
            raise _Refused("it is too long")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except _Refused as error:
        reason = str(error)
    except ArithmeticError as error:
        reason = f"it cannot be computed ({error})"
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        reason = "it is not a Python literal"
    shown = repr(text if len(text) <= 80 else text[:80] + "...")
    raise SystemExit(
        f"fairseq_posenc: option value {shown}: not allowed, because {reason}. "
        "Expected numbers, strings, lists and small arithmetic, for example '[(512, 3)] * 20'."
    )


class _Refused(Exception):
    pass


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
        return _bounded(node.value)
    if isinstance(node, ast.List):
        return _bounded([_value(item) for item in node.elts])
    if isinstance(node, ast.Tuple):
        return _bounded(tuple(_value(item) for item in node.elts))
    if isinstance(node, ast.Dict) and None not in node.keys:  # the key of **other in {**other} is None
        return _bounded({_value(key): _value(value) for key, value in zip(node.keys, node.values)})
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        operand = _value(node.operand)
        if isinstance(node.op, ast.Not) or _is_number(operand):
            return _UNARY[type(node.op)](operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if _is_number(left) and _is_number(right):
            if isinstance(node.op, ast.Pow) and abs(right) > 64:
                raise _Refused("is too large")
            return _bounded(_BINARY[type(node.op)](left, right))
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (list, tuple, str)):
            return _bounded(left + right)
        if isinstance(node.op, ast.Mult) and isinstance(left, (list, tuple, str)) and isinstance(right, int):
            if _size(left) * right > _MOST_ITEMS:
                raise _Refused("is too large")
            return left * right
    raise _Refused("it contains code")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _bounded(value: Any) -> Any:
    """Return the value. Raise an error if it is too large, because the next operation could fill the memory."""
    if isinstance(value, complex):
        raise _Refused("it is not a real number")
    if (isinstance(value, int) and abs(value) > _LARGEST_INTEGER) or _size(value) > _MOST_ITEMS:
        raise _Refused("is too large")
    return value


def _size(value: Any) -> int:
    """Return the number of values plus the number of characters of all strings. A list and each of its items are values."""
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, dict):
        return 1 + sum(map(_size, (*value, *value.values())))
    return 1 + sum(map(_size, value)) if isinstance(value, (list, tuple)) else 1


class _Finder(importlib.abc.MetaPathFinder):
    """Find fairseq's modules in the same way as Python, and replace `eval` in each module before the code of the module runs."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None):
        if name.partition(".")[0] not in _PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _with_our_eval(spec.loader.exec_module)
        return spec


@wrapper
def _with_our_eval(exec_module: Callable, module: ModuleType) -> None:
    module.eval = evaluate
    exec_module(module)


def apply() -> None:
    """Replace `eval` in all loaded modules of fairseq, and in modules that are loaded later."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES:
            module.eval = evaluate
    sys.meta_path.insert(0, _Finder())

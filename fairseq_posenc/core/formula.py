"""Formulas of cards. A formula computes the number of parameters of a method. `posenc show` prints the formula.

This module does not import torch.

Letters:
    d: embedding dimension. h: number of heads. d_h: dimension of a head. L: number of layers of the stack that use the method.
    n, m: maximum numbers of positions of queries and keys. They differ only in cross-attention.
    V: size of the dictionary. causal, cross, relations, padding_idx: as in `Dims`.
    shared_by_layers: whether layers share one table. It depends on the option `share`.
    tables: number of tables per stack. It depends on the option `share` (none: L h, heads: L, layers: h, all: 1).
    used_heads: number of heads that use the method. It depends on the option `heads`.
    A formula can also contain the name of any option of the method.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from .dims import Dims
from .errors import PositionError


def owners(share: str, dims: Dims) -> tuple[int, int]:
    """Return the sizes of the layer axis and the head axis of a table.

    `share` is the option `share` of the method. An axis has size 1 if the table is shared along this axis.
    """
    layers, heads = dims.num_layers, dims.num_heads
    return {"none": (layers, heads), "heads": (layers, 1), "layers": (1, heads), "all": (1, 1)}[share]


def heads_of(options: Any, dims: Dims) -> tuple[int, ...]:
    """Return the indices of the heads that use a method: by default, all heads.

    Raise PositionError if the option `heads` contains an index that does not exist.
    """
    given = getattr(options, "heads", None)
    if not isinstance(given, tuple):  # the option is not set, or the method has a different option with the name `heads`
        return tuple(range(dims.num_heads))
    if given[-1] >= dims.num_heads:
        raise PositionError(
            f"heads={given[-1]}: there is no head {given[-1]}. Expected heads 0 to {dims.num_heads - 1}. Remove it from heads=."
        )
    return given


def shared_by_layers(share: str) -> bool:
    """Return whether layers share one table."""
    return share in ("layers", "all")


def evaluate(formula: str, options: Any, dims: Dims) -> int:
    """Return the value of a formula for these options and sizes."""
    layers, heads = owners(getattr(options, "share", "none"), dims)
    letters = {
        "V": dims.vocab_size,
        "d": dims.embed_dim,
        "h": dims.num_heads,
        "used_heads": len(heads_of(options, dims)),
        "d_h": dims.head_dim,
        "L": dims.num_layers,
        "n": dims.max_positions,
        "m": dims.max_key_positions,
        "padding_idx": dims.padding_idx,
        "relations": dims.relations,
        "causal": dims.causal,
        "cross": dims.cross,
        "tables": layers * heads,
        "shared_by_layers": shared_by_layers(getattr(options, "share", "none")),
    }
    value = _value(_parse(formula).body, {**letters, **vars(options)})
    if not isinstance(value, (int, float)):
        raise ValueError(f"the value of {formula!r} is {value!r}, not a number")
    return int(value)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_LONGEST = 2000  # maximum number of characters of a formula
_LARGEST = 10**30  # maximum absolute value of a number in a formula
_LARGEST_EXPONENT = 64


@functools.cache
def _parse(formula: str) -> ast.Expression:
    try:
        if len(formula) > _LONGEST:
            raise ValueError(f"the formula has more than {_LONGEST} characters")
        return ast.parse(formula, mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the formula is not an expression ({getattr(error, 'msg', type(error).__name__)})") from None


def _value(node: ast.expr, letters: Mapping[str, Any]) -> Any:
    """Return the value of a node of the syntax tree. `letters` contains the values of all names.

    Allowed: numbers, strings, names in `letters`, arithmetic, comparisons, conditions, max, min and count.
    """
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in letters:
        return letters[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _number(node.left, letters), _number(node.right, letters)
        if isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_EXPONENT:
            raise ValueError(f"the exponent {right} is larger than {_LARGEST_EXPONENT}")
        return _bounded(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        operand = _value(node.operand, letters) if isinstance(node.op, ast.Not) else _number(node.operand, letters)
        return _OPERATORS[type(node.op)](operand)
    if isinstance(node, ast.BoolOp):
        value = None
        for item in node.values:
            value = _value(item, letters)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, letters) else node.orelse, letters)
    if isinstance(node, ast.Compare) and all(type(op) in _OPERATORS for op in node.ops):
        values = [_value(item, letters) for item in (node.left, *node.comparators)]
        return all(_OPERATORS[type(op)](*pair) for op, pair in zip(node.ops, itertools.pairwise(values)))
    if isinstance(node, ast.Call) and not node.keywords:
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min") and len(node.args) > 1:
            return {"max": max, "min": min}[node.func.id](_number(item, letters) for item in node.args)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "count" and len(node.args) == 1:
            text, part = _value(node.func.value, letters), _value(node.args[0], letters)
            if isinstance(text, str) and isinstance(part, str):
                return text.count(part)
    raise ValueError(f"{ast.unparse(node)[:60]!r} is not allowed in a formula")


def _number(node: ast.expr, letters: Mapping[str, Any]) -> Any:
    value = _value(node, letters)
    if not isinstance(value, (bool, int, float)):
        raise ValueError(f"the value of {ast.unparse(node)[:60]!r} is {value!r}, not a number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, complex) or (isinstance(value, (int, float)) and not abs(value) <= _LARGEST):
        raise ValueError(f"a number is larger than {_LARGEST:.0e}")
    return value


def pretty(formula: str) -> str:
    """Return the formula in mathematical notation, for example 2 (d^2 + d) for 2 * (d**2 + d)."""
    return re.sub(r" ?\* ?", " ", formula.replace("**", "^"))

"""Errors for methods outside this package that use class names, hooks or flags of earlier versions.

This module does not import torch.
"""

from __future__ import annotations

import inspect

from .errors import PositionError

#: earlier class name -> present class name
IMPORTED = {"Options": "MethodOptions"}
#: earlier hook or flag of a method -> its replacement
_MEMBERS = {
    "draw": "prepare(ctx), whose result hooks read as ctx.prepared[self]",
    "query_input": 'project_input(which, x, at, ctx) below @acts_on("query")',
    "key_input": 'project_input(which, x, at, ctx) below @acts_on("key")',
    "value_input": 'project_input(which, x, at, ctx) below @acts_on("value")',
    "rotate_query": 'rotate(which, x, at, ctx) with which == "query"',
    "rotate_key": 'rotate(which, x, at, ctx) with which == "key"',
    "integer_positions": 'position_type = "integer"',
    "fractional_positions": 'position_type = "fractional"',
    "mixes_keys": "@acts_on(..., mixes_positions=True) above project_input",
    "caches_keys": "@recurrent above attend",
    "adds_losses": 'losses=("name",) on the card',
}


def new_name(name: str) -> str:
    """Return the error message for the import of an earlier class name."""
    return f"{name}: this class was renamed. Expected {IMPORTED[name]}. Replace the name in this file."


def refuse_old_members(cls: type) -> None:
    """Raise PositionError if a method defines a hook or flag of an earlier version."""
    members = vars(cls)
    for name, now in _MEMBERS.items():
        if name in members:
            raise PositionError(
                f"{cls.__name__}: {name} is a name of an earlier version. Expected {now}. Rename it in this file."
            )
    scale = members.get("scale")
    if inspect.isfunction(scale) and "head_dim" in inspect.signature(scale).parameters:
        raise PositionError(
            f"{cls.__name__}: scale(head_dim) is of an earlier version. Expected scale(ctx). Use self.dims.head_dim in its body."
        )

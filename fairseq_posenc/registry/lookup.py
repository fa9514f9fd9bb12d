"""The methods by name (no torch; a method's own file is imported when it is built)."""

from __future__ import annotations

import difflib

from ..core import MethodCard, PositionError
from .declarations import Declaration, declarations


def names() -> list[str]:
    """The names of all methods."""
    return list(declarations())


def declaration(name: str) -> Declaration:
    """What a method declares; raises PositionError with the nearest name."""
    found = declarations()
    if name not in found:
        raise PositionError(
            f"position method {name!r} is unknown{nearest(name, names())} "
            f"({len(found)} methods: posenc list; files of your own: POSENC_METHODS)"
        )
    return found[name]


def card(name: str) -> MethodCard:
    """The card of a method."""
    return declaration(name).card


def method_class(name: str) -> type:
    """The class of a method."""
    return declaration(name).load()


def nearest(given: str, allowed: list[str]) -> str:
    """'; did you mean X?' for the nearest name, or nothing where none is near."""
    match = difflib.get_close_matches(given, allowed, 1, 0.5)
    return f"; did you mean {match[0]!r}?" if match else ""

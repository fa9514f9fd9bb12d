"""Look up methods by name. This module does not import torch.

The file of a method is imported only when its class is needed.
"""

from __future__ import annotations

import difflib

from ..common.messages import shorten
from ..core import SITES, MethodCard, PositionError
from .declarations import Declaration, declarations


def names() -> list[str]:
    """Return the names of all methods."""
    return list(declarations())


def declaration(name: str) -> Declaration:
    """Return the declaration of a method. Raise PositionError for an unknown name."""
    found = declarations()
    if name not in found:
        members = [other for other in found if other.startswith(f"{name}_")]
        wrong = f"this is a group of methods. Expected one of {', '.join(members)}." if members else "unknown."
        hint = "" if members else nearest(name, names())
        if name in SITES:
            hint = f" A spec for one site has the form {name}=SPEC."
        raise PositionError(
            f"method {shorten(name)!r}: {wrong}{hint} For all methods, run posenc list. For your own methods, set POSENC_METHODS."
        )
    return found[name]


def card(name: str) -> MethodCard:
    """Return the card of a method."""
    return declaration(name).card


def method_class(name: str) -> type:
    """Import and return the class of a method."""
    return declaration(name).load()


def nearest(given: str, allowed: list[str]) -> str:
    """Return the sentence " Did you mean 'X'?" for the most similar name, or an empty string if no name is similar."""
    match = difflib.get_close_matches(given, allowed, 1, 0.5)
    return f" Did you mean {match[0]!r}?" if match else ""

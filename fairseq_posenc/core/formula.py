"""Formulas of cards: how many parameters a method has, as an expression that can be read, evaluated and tested (no torch).

Letters: d width, h heads, d_h width of a head, L layers of the stack that use the method, n and m the largest numbers of
positions of queries and keys (they differ in cross-attention alone), causal, cross and relations as in `Dims`; `tables`, how many
tables a stack has by the option `share` (L h for none, L for heads, h for layers, 1 for all); `used_heads`, how many heads use
the method by the option `heads`; V, words of the dictionary; and every option by its name.
"""

from __future__ import annotations

import re
from typing import Any

from .dims import Dims
from .errors import PositionError


def owners(share: str, dims: Dims) -> tuple[int, int]:
    """How many tables there are along layers and along heads where `share` names what has one in common."""
    layers, heads = dims.num_layers, dims.num_heads
    return {"none": (layers, heads), "heads": (layers, 1), "layers": (1, heads), "all": (1, 1)}[share]


def heads_of(options: Any, dims: Dims) -> tuple[int, ...]:
    """Return the heads that use a method, all of them without `heads`. Raises PositionError for a head that does not exist."""
    given = getattr(options, "heads", None)
    if not isinstance(given, tuple):  # all heads, or an option of a method that is named alike
        return tuple(range(dims.num_heads))
    if given[-1] >= dims.num_heads:
        raise PositionError(
            f"heads={given[-1]}: the head does not exist. Expected heads from 0 to {dims.num_heads - 1}. Leave it out of heads=."
        )
    return given


def shared_by_layers(share: str) -> bool:
    """Whether layers have in common what is shared so."""
    return share in ("layers", "all")


def evaluate(formula: str, options: Any, dims: Dims) -> int:
    """The value of a formula for these options and sizes."""
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
        "max": max,
        "min": min,
    }
    return int(eval(formula, {"__builtins__": {}}, {**letters, **vars(options)}))


def pretty(formula: str) -> str:
    """The formula as it is read: 2 (d^2 + d) for 2 * (d**2 + d)."""
    return re.sub(r" ?\* ?", " ", formula.replace("**", "^"))

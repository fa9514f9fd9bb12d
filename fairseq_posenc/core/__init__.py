"""The interface between a position method and the Transformer that calls its hooks.

Letters used in every shape: B sentences, T queries, S keys, H heads, D channels per head, C = H * D model width, L layers.
A distance is always key position minus query position. Classes that need torch are imported at first use.
"""

import importlib

from .card import SITES, HeadOptions, MethodCard, MethodOptions, option
from .dims import Dims
from .errors import PositionError, Refusal
from .formula import heads_of, shared_by_layers
from .hooks import Projection, acts_on, recurrent
from .sentence import END_RELATION, FIRST_RELATION, UNKNOWN_RELATION, Sentence
from .side import SideInput, SideInputs

_WITH_TORCH = {
    "AttentionContext": "context",
    "Positions": "context",
    "PositionMethod": "method",
    "State": "state",
    "ForwardStore": "store",
}

__all__ = [
    "END_RELATION",
    "FIRST_RELATION",
    "SITES",
    "UNKNOWN_RELATION",
    "AttentionContext",
    "Dims",
    "ForwardStore",
    "HeadOptions",
    "MethodCard",
    "MethodOptions",
    "PositionError",
    "PositionMethod",
    "Positions",
    "Projection",
    "Refusal",
    "Sentence",
    "SideInput",
    "SideInputs",
    "State",
    "acts_on",
    "heads_of",
    "option",
    "recurrent",
    "shared_by_layers",
]


def __getattr__(name: str):
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WITH_TORCH[name]}", __name__), name)

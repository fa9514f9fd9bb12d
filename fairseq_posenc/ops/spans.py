"""Positions relative to the first key of a sentence."""

from __future__ import annotations

from torch import Tensor

from ..core import AttentionContext


def from_first_key(ids: Tensor, ctx: AttentionContext) -> Tensor:
    """Return position ids minus the position of the first key that is not padding: [B or 1, T] -> [B or 1, T].

    If `Positions.start` of the keys is set, the first key has position 0, and the ids are returned unchanged. Otherwise, the
    first key may have another position, because a method may change positions.
    """
    if ctx.keys.start is not None:
        return ids
    return ids - ctx.once("first key", lambda: _first_key(ctx))


def _first_key(ctx: AttentionContext) -> Tensor:
    """Return the position of the first key that is not padding: [B or 1, 1]."""
    ids, padding = ctx.keys.ids, ctx.key_padding
    if padding is None:
        return ids[:, :1]
    return ids.expand(len(padding), -1).gather(1, padding.int().argmin(1, keepdim=True))

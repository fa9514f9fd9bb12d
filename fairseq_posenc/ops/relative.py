"""Products with vectors of distances, without a tensor [T, S, D]."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from ..contract import Positions
from .distances import diagonals, distances, table_row


def query_products(
    q: Tensor, queries: Positions, keys: Positions, vectors: Callable[[Tensor], Tensor], limit: int | None = None
) -> Tensor:
    """q_t . r[s - t]: [B, H, T, D] -> [B, H, T, S].

    `vectors` maps distances [W] to [H or 1, W, D]; those beyond +-limit are never asked for, they use its ends.
    """
    along = diagonals(queries, keys)
    if limit is not None and (along is None or 2 * limit + 1 < len(along)):
        known = torch.arange(-limit, limit + 1, device=q.device)
        return spread(q @ vectors(known).transpose(-1, -2), clipped(queries, keys, limit))
    if along is None:
        known, rows = distances(queries, keys).unique(return_inverse=True)
        return spread(q @ vectors(known).transpose(-1, -2), rows)
    along = along if limit is None else along.clamp(-limit, limit)
    return skew(q @ vectors(along).transpose(-1, -2), keys.ids.size(1))


def key_products(
    k: Tensor, queries: Positions, keys: Positions, vectors: Callable[[Tensor], Tensor], limit: int | None = None
) -> Tensor:
    """k_s . r[s - t]: [B, H, S, D] -> [B, H, T, S]; `vectors` and `limit` as in `query_products`."""
    return query_products(k, keys, queries, lambda turned: vectors(-turned), limit).transpose(-1, -2)


def skew(along: Tensor, columns: int) -> Tensor:
    """[..., T, T + S - 1], column s - t + T - 1 of row t for key s, -> [..., T, S]; a view."""
    rows, width = along.shape[-2:]
    if rows == 1:
        return along
    # what row t needs begins one number earlier than in the row before: rows of width - 1 line them up
    return along.flatten(-2)[..., rows - 1 : rows * width - 1].unflatten(-1, (rows, width - 1))[..., :columns]


def clipped(queries: Positions, keys: Positions, limit: int) -> Tensor:
    """The row of a table of 2 * limit + 1 distances for every query and key: [B or 1, T, S]."""
    return table_row(distances(queries, keys), limit)


def spread(logits: Tensor, rows: Tensor) -> Tensor:
    """[B, H, T, W] at rows [B or 1, T, S] of its last axis -> [B, H, T, S]."""
    index = rows.unsqueeze(1).expand(logits.size(0), logits.size(1), -1, -1)
    return logits.gather(-1, index)


def collect(probs: Tensor, rows: Tensor, width: int) -> Tensor:
    """Sums probs [B, H, T, S] over the keys that share a row of a table: [B, H, T, width], summed in float32."""
    index = rows.unsqueeze(1).expand(probs.size(0), probs.size(1), -1, -1)
    summed = probs.new_zeros(*probs.shape[:-1], width, dtype=torch.promote_types(probs.dtype, torch.float32))
    return summed.scatter_add(-1, index, probs.to(summed.dtype)).to(probs.dtype)

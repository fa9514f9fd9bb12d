"""Products with vectors of distances, without a tensor [T, S, D]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import torch
from torch import Tensor

from ..contract import Positions
from .distances import diagonals, distances, table_row

#: queries whose near keys are told from the others together
_ROWS = 64


def query_products(
    q: Tensor, queries: Positions, keys: Positions, vectors: Callable[[Tensor], Tensor], limit: int | None = None
) -> Tensor:
    """q_t . r[s - t]: [B, H, T, D] -> [B, H, T, S].

    `vectors` maps distances [W] to [H or 1, W, D]; those beyond +-limit are never asked for, they use its ends.
    """
    along = diagonals(queries, keys)
    if limit is not None and (along is None or 2 * limit + 1 < len(along)):
        known = torch.arange(-limit, limit + 1, device=q.device)
        return spread_clipped(q @ vectors(known).transpose(-1, -2), queries, keys, limit)
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


def spread_clipped(logits: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
    """[B, H, T, 2 * limit + 1], a column for every clipped distance, -> [B, H, T, S]."""
    return _Spread.apply(logits, queries, keys, limit)


def collect_clipped(probs: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
    """The transpose: sums [B, H, T, S] over keys of one clipped distance, in float32 -> [B, H, T, 2 * limit + 1]."""
    return _Collect.apply(probs, queries, keys, limit)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
        ctx.at = queries, keys, limit
        return spread(logits, clipped(queries, keys, limit))

    @staticmethod
    def backward(ctx, grad: Tensor):
        return collect_clipped(grad, *ctx.at), None, None, None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, probs: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
        ctx.at = queries, keys, limit
        index, wide = clipped(queries, keys, limit), torch.promote_types(probs.dtype, torch.float32)
        out = probs.new_zeros(*probs.shape[:-1], 2 * limit + 1, dtype=wide)
        for rows, near in _near(queries, keys, limit):
            some, own = out[:, :, rows], probs[:, :, rows]
            columns = index[:, None, rows, near].expand(*probs.shape[:2], -1, -1)
            some.scatter_add_(-1, columns, own[..., near].to(wide))
            some[..., 0] += own[..., : near.start].sum(-1, dtype=wide)
            some[..., -1] += own[..., near.stop :].sum(-1, dtype=wide)
        return out.to(probs.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return spread_clipped(grad, *ctx.at), None, None, None


def _near(queries: Positions, keys: Positions, limit: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, and keys beyond which all are clipped; a plain sum of these is faster than a scatter of them."""
    rows, columns = queries.ids.size(1), keys.ids.size(1)
    if queries.start is None or keys.start is None:
        yield slice(0, rows), slice(0, columns)
        return
    ahead = queries.start - keys.start
    for row in range(0, rows, _ROWS):
        last = min(row + _ROWS, rows)
        first, end = (min(max(edge + ahead, 0), columns) for edge in (row - limit, last + limit))
        yield slice(row, last), slice(first, end)

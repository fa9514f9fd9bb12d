"""Products with vectors of distances, without a tensor [T, S, D]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import torch
from torch import Tensor

from ..contract import AttentionContext, Positions
from .distances import diagonals, distances, table_row

Vectors = Callable[[Tensor], Tensor]
#: queries whose near keys are told from the others together
_ROWS = 64


def query_products(q: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int | None = None) -> Tensor:
    """q_t . r[s - t]: [B, H, T, D] -> [B, H, T, S]; in a causal context, numbers for keys after their query mean nothing.

    `vectors` maps distances [W] to [H or 1, W, D]; those beyond +-limit are never asked for, they use its ends.
    """
    some = slice(0, ctx.queries.ids.size(1) + 1) if ctx.causal else None
    return _products(q, ctx.queries, ctx.keys, vectors, limit, some)


def key_products(k: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int | None = None) -> Tensor:
    """k_s . r[s - t]: [B, H, S, D] -> [B, H, T, S]; the rest as in `query_products`."""
    some = slice(max(ctx.keys.ids.size(1) - 2, 0), None) if ctx.causal else None
    return _products(k, ctx.keys, ctx.queries, lambda turned: vectors(-turned), limit, some).transpose(-1, -2)


def _products(x: Tensor, rows: Positions, columns: Positions, vectors: Vectors, limit: int | None, some: slice | None) -> Tensor:
    """[B, H, rows, D] -> [B, H, rows, columns]; where both are the same positions, `some` of their distances are enough."""
    along = diagonals(rows, columns)
    if limit is not None and (along is None or 2 * limit + 1 < len(along)):
        known = torch.arange(-limit, limit + 1, device=x.device)
        return spread_clipped(x @ vectors(known).transpose(-1, -2), rows, columns, limit)
    if along is None:
        known, index = distances(rows, columns).unique(return_inverse=True)
        return spread(x @ vectors(known).transpose(-1, -2), index)
    length, first = rows.ids.size(1), 0
    if some is not None and rows.start == columns.start and length == columns.ids.size(1):
        along, first = along[some], some.start
    along = along if limit is None else along.clamp(-limit, limit)
    return skew(x @ vectors(along).transpose(-1, -2), columns.ids.size(1), length - 1 - first)


def skew(along: Tensor, columns: int, offset: int) -> Tensor:
    """[..., T, W], column s - t + offset of row t for key s, -> [..., T, S]; a view."""
    rows, width = along.shape[-2:]
    if rows == 1:
        return along
    # what row t needs begins one number earlier than in the row before: rows of width - 1 line them up
    return along.flatten(-2)[..., offset : offset + rows * (width - 1)].unflatten(-1, (rows, width - 1))[..., :columns]


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
        if not _alone(queries, keys):
            return spread(logits, clipped(queries, keys, limit))
        ((_, near),) = _near(queries, keys, limit)
        before, after = near.start, keys.ids.size(1) - near.stop
        ends = logits[..., :1].expand(-1, -1, -1, before), logits[..., -1:].expand(-1, -1, -1, after)
        return torch.cat([ends[0], logits[..., _columns(near, queries, keys, limit)], ends[1]], -1)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return collect_clipped(grad, *ctx.at), None, None, None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, probs: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
        ctx.at = queries, keys, limit
        alone, wide = _alone(queries, keys), torch.promote_types(probs.dtype, torch.float32)
        index = None if alone else clipped(queries, keys, limit)
        out = probs.new_zeros(*probs.shape[:-1], 2 * limit + 1, dtype=wide)
        for rows, near in _near(queries, keys, limit):
            some, own = out[:, :, rows], probs[:, :, rows]
            if alone:
                some[..., _columns(near, queries, keys, limit)] = own[..., near]
            else:
                columns = index[:, None, rows, near].expand(*probs.shape[:2], -1, -1)
                some.scatter_add_(-1, columns, own[..., near].to(wide))
            if near.start > 0:
                some[..., 0] += own[..., : near.start].sum(-1, dtype=wide)
            if near.stop < own.size(-1):
                some[..., -1] += own[..., near.stop :].sum(-1, dtype=wide)
        return out.to(probs.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return spread_clipped(grad, *ctx.at), None, None, None


def _alone(queries: Positions, keys: Positions) -> bool:
    """Whether there is one counted query, as in decoding, whose near keys have columns in a row."""
    return queries.start is not None and keys.start is not None and queries.ids.size(1) == 1


def _columns(near: slice, queries: Positions, keys: Positions, limit: int) -> slice:
    """Those of the near keys of one counted query."""
    first = near.start + keys.start - queries.start + limit
    return slice(first, first + near.stop - near.start)


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

"""Products of queries, keys or attention weights with one vector per distance.

A tensor [T, S, D] is created only if it is smaller than the queries or keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import AttentionContext, Positions
from . import devices
from .distances import diagonals, distances, toeplitz
from .kernels.clipped_distances import CollectClipped, SpreadClipped
from .kernels.distance_products import ByColumn, ByDistance, DistanceScores, DistanceSums, Layout, rows_per_block

Vectors = Callable[[Tensor], Tensor]
#: columns that a causal context needs in row t. "before": the columns 0 to t. "after": the columns from t to the last.
#: None: all columns
Needed = Literal["before", "after"] | None
#: maximum number of columns for which all distances are computed, also in a causal context
_SHORT = 64


def same_in_all_layers(key: Hashable, vectors: Vectors, ctx: AttentionContext) -> Vectors:
    """Wrap `vectors` so that all layers with the same positions share the results of `vectors`.

    The results must not require gradients. If positions are not counted (see `Positions`), `vectors` is returned unchanged.
    """
    queries, keys = ctx.queries, ctx.keys
    if queries.start is None or keys.start is None:
        return vectors
    spans = queries.start, queries.ids.size(1), keys.start, keys.ids.size(1)
    return lambda distance: ctx.once((key, *spans, len(distance)), lambda: vectors(distance))


def kept_while_decoding(key: str, vectors: Vectors, ctx: AttentionContext, of_queries: bool = True) -> Vectors:
    """Wrap `vectors` so that each decoding step only computes the vector of the longest distance.

    The decoding state stores the vectors of shorter distances. `of_queries` is True if the result is an argument of
    `query_products`, and False if it is an argument of `key_products`.
    """
    counted = ctx.keys.start == 0 and ctx.queries.start is not None and ctx.queries.ids.size(1) == 1
    state = ctx.state
    if state is None or not counted or not ctx.causal:
        return vectors

    def continued(distance: Tensor) -> Tensor:
        known = state.get(key)
        count = 0 if known is None else known.size(1)
        # for queries, the longest distance is the first one; for keys, it is the last one
        found = vectors(distance[: len(distance) - count] if of_queries else distance[count:])
        parts = [found] if known is None else [found, known] if of_queries else [known, found]
        return state.store_shared(key, torch.cat(parts, 1))

    return continued


def query_products(q: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int | None = None) -> Tensor:
    """Compute q_t . r[s - t]: [B, H, T, D] -> [B, H, T, S]. In a causal context, the results for later keys are undefined.

    `vectors` is r. It maps distances [W] to [H or 1, W, D]. With `limit`, longer distances use the vector of -limit or limit.
    """
    return _products(q, ctx.queries, ctx.keys, vectors, limit, "before" if ctx.causal else None)


def key_products(k: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int | None = None) -> Tensor:
    """Compute k_s . r[s - t]: [B, H, S, D] -> [B, H, T, S]. `query_products` describes the arguments."""
    needed: Needed = "after" if ctx.causal else None
    return _products(k, ctx.keys, ctx.queries, lambda distance: vectors(-distance), limit, needed).transpose(-1, -2)


def sum_products(q: Tensor, k: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int | None = None) -> Tensor:
    """Compute (q_t + k_s) . r[s - t]: [B, H, T, D] and [B, H, S, D] -> [B, H, T, S].

    The result is the sum of `query_products` and `key_products` with the same vectors.
    """
    queries, keys = ctx.queries, ctx.keys
    counted = queries.start is not None and keys.start is not None
    few = limit is not None and _few_vectors((*q.shape[:3], k.size(2)), queries, keys, limit)
    if devices.on_cpu(q) and counted and not few and keys.ids.size(1) <= _SHORT:
        table = vectors(_occurring(queries, keys, limit, None)[0]).to(q.dtype)
        if len(table) == 1 and _is_short((*q.shape[:3], k.size(2)), table):
            _, pairs = _by_pair(table, keys)
            return torch.einsum("bhtd,tsd->bhts", q, pairs) + torch.einsum("bhsd,tsd->bhts", k, pairs)
    return query_products(q, ctx, vectors, limit) + key_products(k, ctx, vectors, limit)


def value_products(weights: Tensor, ctx: AttentionContext, vectors: Vectors, limit: int) -> Tensor:
    """Compute sum_s w_ts r[s - t]: attention weights [B, H, T, S] -> [B, H, T, D].

    `query_products` describes `vectors` and `limit`.
    """
    if _few_vectors(weights.shape, ctx.queries, ctx.keys, limit):
        table = vectors(torch.arange(-limit, limit + 1, device=weights.device)).to(weights.dtype)
        return table_product(CollectClipped.apply(weights, ctx.queries, ctx.keys, limit), table)
    along, layout = _occurring(ctx.queries, ctx.keys, limit, "before" if ctx.causal else None)
    table = vectors(along).to(weights.dtype)
    if not devices.on_cpu(weights):
        return table_product(ByDistance.apply(weights, _strides(weights, table)), table)
    if _is_short(weights.shape, table):
        one, pairs = _by_pair(table, ctx.keys)
        return torch.einsum("bhts,tsd->bhtd" if one else "bhts,hdts->bhtd", weights, pairs)
    return DistanceSums.apply(weights, table, layout)


def _products(x: Tensor, rows: Positions, columns: Positions, vectors: Vectors, limit: int | None, needed: Needed) -> Tensor:
    """Compute x_t . r[s - t] for all row positions t and column positions s.

    `query_products` describes the arguments.

    Shapes: [B, H, rows, D] -> [B, H, rows, columns]. The function selects the computation with the fewest operations.
    """
    if limit is not None and _few_vectors((*x.shape[:3], columns.ids.size(1)), rows, columns, limit):
        table = vectors(torch.arange(-limit, limit + 1, device=x.device)).to(x.dtype)
        return SpreadClipped.apply(table_product(x, table.transpose(-1, -2)), rows, columns, limit)
    if rows.start is None or columns.start is None:
        found, index = distances(rows, columns).unique(return_inverse=True)
        return spread(table_product(x, vectors(found).to(x.dtype).transpose(-1, -2)), index)
    along, layout = _occurring(rows, columns, limit, needed)
    table, shape = vectors(along).to(x.dtype), (*x.shape[:3], columns.ids.size(1))
    if not devices.on_cpu(x):
        return ByColumn.apply(table_product(x, table.mT), shape[3])
    if _is_short(shape, table):
        one, pairs = _by_pair(table, columns)
        return torch.einsum("bhtd,tsd->bhts" if one else "bhtd,hdts->bhts", x, pairs)
    return DistanceScores.apply(x, table, shape[3], layout)


def _is_short(shape: tuple[int, ...], table: Tensor) -> bool:
    """Return whether to create the vectors of all pairs of positions on a CPU: one tensor [T, S, D] per table.

    The result is True under two conditions: there are at most `_SHORT` columns, and these tensors have at most half as many
    elements as a tensor [B, H, T, D]. Batches of many short sentences meet these conditions. If all heads use one table, fewer
    sentences are sufficient.
    """
    batch, heads, _, columns = shape
    return columns <= _SHORT and batch * heads // len(table) >= 2 * columns


def _by_pair(table: Tensor, columns: Positions) -> tuple[bool, Tensor]:
    """Copy the vector of each distance to all pairs of positions with this distance.

    `table` contains the vectors of ascending distances. The first result is True if `table` contains
    one table for all heads.

    Shapes: [1, T + S - 1, D] -> True and [T, S, D], or [H, T + S - 1, D] -> False and [H, D, T, S].
    """
    width = columns.ids.size(1)
    if len(table) > 1:
        return False, toeplitz(table.transpose(-1, -2), width)
    index = toeplitz(torch.arange(table.size(1), device=table.device), width)  # [T, S]
    return True, F.embedding(index, table[0])  # the gradient of embedding is one kernel


def _few_vectors(shape: tuple[int, ...], rows: Positions, columns: Positions, limit: int) -> bool:
    """Return whether to compute the vectors of all distances from -limit to limit.

    The result is True if positions are not counted. It is also True if there are more possible distances than these vectors.
    There is one exception on a CPU: in a batch of many short sentences, the vectors of all pairs of positions need fewer
    operations if there are fewer columns than vectors. `shape` is [B, H, rows, columns].
    """
    if rows.start is None or columns.start is None:
        return True
    batch, _, queries, keys = shape
    # `_is_short` is True, also with one table per head
    short = devices.on_cpu(columns.ids) and keys <= _SHORT and batch >= 2 * keys
    if short and keys < 2 * limit + 1:
        return False
    return 2 * limit + 1 < queries + keys - 1


def _occurring(rows: Positions, columns: Positions, limit: int | None, needed: Needed) -> tuple[Tensor, Layout]:
    """Return the possible distances in ascending order, and their layout (see `Layout`).

    With `limit`, longer distances are replaced by -limit or limit. With `needed`, the function leaves out most distances
    that a causal context does not need.
    """
    along, offset = diagonals(rows, columns), rows.ids.size(1) - 1
    # for short sentences, omitting keys would save little or no time. On an accelerator, all rows are one block
    same = rows.start == columns.start and rows.ids.size(1) == columns.ids.size(1)
    if not same or columns.ids.size(1) <= _SHORT or not devices.on_cpu(columns.ids):
        needed = None
    beyond = rows_per_block(rows.ids.size(1)) - 1  # number of later keys that a block of rows includes
    if needed == "before":
        along = along[: offset + 1 + beyond]
    elif needed == "after":
        along, offset = along[offset - beyond :], beyond
    if limit is not None and limit < max(rows.last - columns.start, columns.last - rows.start):  # the longest distance
        along = along.clamp(-limit, limit)
    return along, Layout(offset, needed)


def table_product(x: Tensor, table: Tensor) -> Tensor:
    """Compute [B, H, T, N] @ [H or 1, N, M] -> [B, H, T, M].

    If the axes of `x` have the order [B, T, H, N] in memory, neither `x` nor the table is copied.
    """
    if len(table) == 1:
        return x @ table[0] if x.is_contiguous() else (x.transpose(1, 2) @ table[0]).transpose(1, 2)
    if x.is_contiguous() and table.size(2) < x.size(2):  # a copy of the table per sentence is smaller than a copy of `x`
        return x @ table
    heads = x.transpose(0, 1)  # [H, B, T, N]
    return torch.bmm(heads.flatten(1, 2), table).view(*heads.shape[:3], -1).transpose(0, 1)


def _strides(weights: Tensor, table: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor [B, H, T, T + S - 1] that `table_product` does not copy."""
    batch, heads, rows, _ = weights.shape
    width = table.size(1)
    return (heads * rows * width, rows * width, width, 1) if len(table) == 1 else (rows * width, batch * rows * width, width, 1)


def spread(columns: Tensor, index: Tensor) -> Tensor:
    """Select entries of every row: [B, H, T, W] -> [B, H, T, S].

    `index` [B or 1, T, S] contains the column of each selected entry.
    """
    return columns.gather(-1, index.unsqueeze(1).expand(*columns.shape[:2], -1, -1))

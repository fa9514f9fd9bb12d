"""Convert between matrices with one column per clipped distance and matrices with one column per key.

`SpreadClipped` expands the matrix. `CollectClipped` sums the columns of all keys with the same clipped distance. Each operation
is the gradient of the other.

If positions are counted (see `Positions`), `CollectClipped` does not scatter the weights of keys whose distances to all queries
of a block are clipped. These weights are summed into the first or the last column.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import Positions
from .. import devices
from ..distances import distances, table_row
from ..precision import at_least_float32

#: number of queries that share one range of near keys
_ROWS = 64


class SpreadClipped(torch.autograd.Function):
    """Expand [B, H, T, 2 * limit + 1] -> [B, H, T, S]: each key receives the column of its clipped distance."""

    @staticmethod
    def forward(ctx, columns: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
        ctx.positions = queries, keys, limit
        if _at_once(columns, queries, keys):
            return spread_at_once(columns, queries, keys, limit)
        if not _is_one_counted_query(queries, keys):
            index = clipped_columns(queries, keys, limit).unsqueeze(1)
            return columns.gather(-1, index.expand(*columns.shape[:2], -1, -1))
        ((_, near),) = _near_keys(queries, keys, limit)
        before, after = near.start, keys.ids.size(1) - near.stop
        ends = columns[..., :1].expand(-1, -1, -1, before), columns[..., -1:].expand(-1, -1, -1, after)
        return torch.cat([ends[0], columns[..., _columns_of(near, queries, keys, limit)], ends[1]], -1)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return CollectClipped.apply(grad, *ctx.positions), None, None, None


class CollectClipped(torch.autograd.Function):
    """Sum the weights of keys with the same clipped distance, in float32 or wider: [B, H, T, S] -> [B, H, T, 2 * limit + 1]."""

    @staticmethod
    def forward(ctx, weights: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
        ctx.positions = queries, keys, limit
        if _at_once(weights, queries, keys):
            return collect_at_once(weights, queries, keys, limit)
        one_query, dtype = _is_one_counted_query(queries, keys), at_least_float32(weights[:0]).dtype
        index = None if one_query else clipped_columns(queries, keys, limit)
        out = weights.new_zeros(*weights.shape[:-1], 2 * limit + 1, dtype=dtype)
        for rows, near in _near_keys(queries, keys, limit):
            target, block = out[:, :, rows], weights[:, :, rows]
            if one_query:
                target[..., _columns_of(near, queries, keys, limit)] = block[..., near]
            else:
                columns = index[:, None, rows, near].expand(*weights.shape[:2], -1, -1)
                target.scatter_add_(-1, columns, block[..., near].to(dtype))
            # for keys with clipped distances, a sum is faster than a scatter
            if near.start > 0:
                target[..., 0] += block[..., : near.start].sum(-1, dtype=dtype)
            if near.stop < block.size(-1):
                target[..., -1] += block[..., near.stop :].sum(-1, dtype=dtype)
        return out.to(weights.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return SpreadClipped.apply(grad, *ctx.positions), None, None, None


def _at_once(x: Tensor, queries: Positions, keys: Positions) -> bool:
    """Return whether the result is computed for all queries at once, without blocks.

    A computation without blocks launches fewer kernels, but needs more memory. On a CPU, this memory would exceed the cache.
    """
    counted = queries.start is not None and keys.start is not None
    return counted and not devices.on_cpu(x) and not _is_one_counted_query(queries, keys)


def spread_at_once(columns: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
    """Compute `SpreadClipped` for counted positions (see `Positions`): [B, H, T, 2 * limit + 1] -> a view [B, H, T, S].

    The function copies the columns only once.
    """
    rows, size = queries.ids.size(1), keys.ids.size(1)
    # row t of `extended` contains the columns of all T + S - 1 distances in ascending order
    first = keys.start - (queries.start + rows - 1)
    last = first + rows + size - 2
    near = columns[..., min(max(first + limit, 0), 2 * limit) : min(max(last + limit, 0), 2 * limit) + 1]
    width = near.size(-1)
    before = min(max(-limit - first, 0), rows + size - 1 - width)
    after = rows + size - 1 - width - before
    ends = near[..., :1].expand(*near.shape[:3], before), near[..., -1:].expand(*near.shape[:3], after)
    extended = torch.cat([ends[0], near, ends[1]], -1)  # [B, H, T, T + S - 1]
    strides = extended.stride()
    # each row starts one distance earlier than the row above
    return extended.as_strided((*extended.shape[:3], size), (*strides[:2], strides[2] - 1, 1), rows - 1)


def collect_at_once(weights: Tensor, queries: Positions, keys: Positions, limit: int) -> Tensor:
    """Compute `CollectClipped` for counted positions (see `Positions`), without a loop over blocks.

    The weights of the keys near each query are a view of the padded weights. One matrix product sums the weights of other keys.
    """
    rows, size = queries.ids.size(1), keys.ids.size(1)
    offset = queries.start - keys.start  # the column of distance 0 in the first row
    ones = weights.new_ones(rows, size)
    beyond = torch.stack([ones.tril(offset - limit), ones.triu(offset + limit)], -1)  # [T, S, 2]
    batch = weights.flatten(0, 1).transpose(0, 1)  # [T, B * H, S]
    sums = torch.bmm(batch, beyond).transpose(0, 1).unflatten(0, weights.shape[:2])  # [B, H, T, 2]
    if limit == 0:
        return weights.sum(-1, keepdim=True)
    # row t of the padded weights has distance -limit + 1 at column t + left + offset - limit + 1
    left, right = max(limit - 1 - offset, 0), max(offset + rows + limit - 1 - size, 0)
    padded = F.pad(weights, (left, right)) if left or right else weights.contiguous()
    strides = padded.stride()
    start = padded.storage_offset() + left + offset - limit + 1
    near = padded.as_strided((*weights.shape[:3], 2 * limit - 1), (*strides[:2], strides[2] + 1, 1), start)
    return torch.cat([sums[..., :1], near, sums[..., 1:]], -1)


def clipped_columns(queries: Positions, keys: Positions, limit: int) -> Tensor:
    """Return the column of every clipped distance: [B or 1, T, S], from 0 to 2 * limit."""
    return table_row(distances(queries, keys), limit)


def _is_one_counted_query(queries: Positions, keys: Positions) -> bool:
    """Return whether there is only one query, and all sentences have the positions start, start + 1, ..., as in decoding.

    In this case, the distances from this query to the keys near it are consecutive. A matrix with one column per clipped
    distance then contains the values of these keys in consecutive columns.
    """
    return queries.start is not None and keys.start is not None and queries.ids.size(1) == 1


def _columns_of(near: slice, queries: Positions, keys: Positions, limit: int) -> slice:
    """Return the columns of the clipped distances between a single query and the keys of the range `near`.

    The positions of queries and keys must be counted positions (see `Positions`).
    """
    first = near.start + keys.start - queries.start + limit
    return slice(first, first + near.stop - near.start)


def _near_keys(queries: Positions, keys: Positions, limit: int) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of queries, and for each block a range of keys. The distances of all keys outside this range are clipped."""
    rows, columns = queries.ids.size(1), keys.ids.size(1)
    if queries.start is None or keys.start is None:
        yield slice(0, rows), slice(0, columns)
        return
    ahead = queries.start - keys.start
    for row in range(0, rows, _ROWS):
        last = min(row + _ROWS, rows)
        first, end = (min(max(edge + ahead, 0), columns) for edge in (row - limit, last + limit))
        yield slice(row, last), slice(first, end)

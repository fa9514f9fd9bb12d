"""Products with one vector per distance, computed in blocks of rows.

No tensor [T, S, D] is computed. On a CPU, no tensor [T, T + S] is computed for long sentences, because a block contains only a
part of the rows. For each block, only products with the distances that occur in the block are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .. import devices
from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: number of blocks of rows on a CPU, and minimum number of rows per block
_BLOCKS, _FEWEST_ROWS = 8, 8


class Layout(NamedTuple):
    """Numbering of distances. The distance of row t and column s is s - t. The vector of this distance has the index
    s - t + offset.

    `needed` restricts the columns that are computed. For row t, "before" requires the columns 0 to t, and "after" requires the
    columns from t to the last. The values of other columns are undefined.
    """

    offset: int
    needed: Literal["before", "after"] | None = None

    def blocks(self, rows: int, columns: int, x: Tensor) -> Iterator[tuple[slice, slice, slice]]:
        """Yield three slices per block of the score matrix [rows, columns].

        The slices select the rows and the columns of the block, and the vectors of their distances.
        """
        size = rows_per_block(rows, x)
        for first in range(0, rows, size):
            end = min(first + size, rows)
            left, right = first if self.needed == "after" else 0, end if self.needed == "before" else columns
            lowest, highest = left - (end - 1), right - 1 - first
            yield slice(first, end), slice(left, right), slice(lowest + self.offset, highest + self.offset + 1)


def rows_per_block(rows: int, x: Tensor) -> int:
    """Return the number of rows of a block: a part of `rows` on a CPU, and all rows on an accelerator."""
    return min(rows, max(_FEWEST_ROWS, -(-rows // _BLOCKS))) if devices.on_cpu(x) else rows


class DistanceScores(torch.autograd.Function):
    """Compute x_t . r[s - t]: x [B, H, T, D], vectors [H or 1, W, D] -> [B, H, T, columns].

    Equation: y_ts = x_t . r[s - t]. With g the gradient of y, the gradient of x_t is sum_s g_ts r[s - t], and the gradient of
        r[j] is the sum of g_ts x_t over the pairs with s - t = j.
    """

    @staticmethod
    def forward(ctx, x: Tensor, vectors: Tensor, columns: int, layout: Layout) -> Tensor:
        grouped = _grouped(x, vectors).contiguous()
        ctx.layout, ctx.sizes = layout, x.shape[:2]
        ctx.save_for_backward(grouped, vectors)
        return _scores(grouped, vectors, columns, ctx.sizes, layout)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, vectors = ctx.saved_tensors
        grad_x, grad_vectors = torch.empty_like(x), torch.zeros_like(vectors, dtype=at_least_float32(vectors).dtype)
        for rows, near, along in _by_distance(grad, vectors, ctx.layout):
            grad_x[:, rows] = torch.bmm(along, vectors[:, near]).view_as(grad_x[:, rows])
            grad_vectors[:, near] += torch.bmm(along.mT, x[:, rows].flatten(1, 2))  # [G, W, rows * N] @ [G, rows * N, D]
        return _ungrouped(grad_x, ctx.sizes), grad_vectors.to(vectors.dtype), None, None


class DistanceSums(torch.autograd.Function):
    """Compute sum_s w_ts r[s - t]: weights [B, H, T, S], vectors [H or 1, W, D] -> [B, H, T, D].

    Equation: y_t = sum_s w_ts r[s - t]. With g the gradient of y, the gradient of w_ts is g_t . r[s - t], and the gradient of
        r[j] is the sum of w_ts g_t over the pairs with s - t = j.
    """

    @staticmethod
    def forward(ctx, weights: Tensor, vectors: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        ctx.save_for_backward(weights, vectors)
        out = weights.new_empty(*_grouped(weights, vectors).shape[:3], vectors.size(2))
        for rows, near, along in _by_distance(weights, vectors, layout):
            out[:, rows] = torch.bmm(along, vectors[:, near]).view_as(out[:, rows])
        return _ungrouped(out, weights.shape[:2])

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        weights, vectors = ctx.saved_tensors
        grad_vectors = torch.zeros_like(vectors, dtype=at_least_float32(vectors).dtype)
        grad = _grouped(grad, vectors).contiguous()
        for rows, near, along in _by_distance(weights, vectors, ctx.layout):
            grad_vectors[:, near] += torch.bmm(along.mT, grad[:, rows].flatten(1, 2))  # [G, W, rows * N] @ [G, rows * N, D]
        grad_weights = _scores(grad, vectors, weights.size(3), weights.shape[:2], ctx.layout)
        return grad_weights, grad_vectors.to(vectors.dtype), None


def _scores(x: Tensor, vectors: Tensor, columns: int, sizes: torch.Size, layout: Layout) -> Tensor:
    """Compute scores: x [G, T, N, D] -> [B, H, T, columns]. `sizes` are B and H."""
    shape = *sizes, x.size(1), columns
    out = x.new_empty(shape) if layout.needed is None else x.new_zeros(shape)
    target = _grouped(out, vectors)
    for rows, keys, near in layout.blocks(x.size(1), columns, x):
        block = x[:, rows]
        along = torch.bmm(block.flatten(1, 2), vectors[:, near].mT).view(*block.shape[:3], -1)
        target[:, rows, :, keys] = _by_column(along, keys.stop - keys.start)
    return out


def _by_distance(scores: Tensor, vectors: Tensor, layout: Layout) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield blocks of rows of the scores [B, H, T, S], with the scores ordered by distance instead of column.

    Each block has three parts: the slice of the rows, the slice of the vectors, and the scores [G, rows * N, W]. In each
    row, distances that do not occur have score 0.
    """
    scores = _grouped(scores, vectors)
    groups, length, size, columns = scores.shape
    along = None
    for rows, keys, near in layout.blocks(length, columns, scores):
        shape = (groups, rows.stop - rows.start, size, near.stop - near.start)
        if along is None or along.shape != shape:  # blocks of equal shape have zeros at the same places
            along = scores.new_zeros(shape)
        _by_column(along, keys.stop - keys.start).copy_(scores[:, rows, :, keys])
        yield rows, near, along.flatten(1, 2)


def _by_column(along: Tensor, columns: int) -> Tensor:
    """Order scores by column instead of distance: [G, rows, N, rows + columns - 1] -> [G, rows, N, columns].

    The result is a view.
    """
    groups, rows, size, width = along.shape
    # each row starts one distance earlier than the row above
    strides = rows * size * width, size * width - 1, width, 1
    return along.as_strided((groups, rows, size, columns), strides, rows - 1)


def _grouped(x: Tensor, vectors: Tensor) -> Tensor:
    """Group heads by table: [B, H, T, D] -> [G, T, N, D], with G tables and N vectors per table and position.

    If x is contiguous, the result is a view.
    """
    return x.permute(2, 0, 1, 3).flatten(1, 2).unsqueeze(0) if vectors.size(0) == 1 else x.permute(1, 2, 0, 3)


def _ungrouped(x: Tensor, sizes: torch.Size) -> Tensor:
    """Invert `_grouped`: [G, T, N, D] -> [B, H, T, D]. The result is a view."""
    return x[0].unflatten(1, sizes).permute(1, 2, 0, 3) if x.size(0) == 1 else x.permute(2, 0, 1, 3)

"""Products with one vector per distance. No tensor [T, S, D] is computed.

On a CPU, `DistanceScores` and `DistanceSums` compute the products in blocks of rows. For long sentences, no tensor [T, T + S] is
computed, because a block contains only a part of the rows. For each block, only products with the distances that occur in the
block are computed. On an accelerator, one matrix product computes all products, and `ByColumn` or `ByDistance` orders them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: number of blocks of rows, and minimum number of rows per block
_BLOCKS, _FEWEST_ROWS = 8, 8


class Layout(NamedTuple):
    """Numbering of distances. The distance of row t and column s is s - t. The vector of this distance has the index
    s - t + offset.

    `needed` restricts the columns that are computed. For row t, "before" requires the columns 0 to t, and "after" requires the
    columns from t to the last. The values of other columns are undefined.
    """

    offset: int
    needed: Literal["before", "after"] | None = None

    def blocks(self, rows: int, columns: int) -> Iterator[tuple[slice, slice, slice]]:
        """Yield three slices per block of the score matrix [rows, columns].

        The slices select the rows and the columns of the block, and the vectors of their distances.
        """
        size = rows_per_block(rows)
        for first in range(0, rows, size):
            end = min(first + size, rows)
            left, right = first if self.needed == "after" else 0, end if self.needed == "before" else columns
            lowest, highest = left - (end - 1), right - 1 - first
            yield slice(first, end), slice(left, right), slice(lowest + self.offset, highest + self.offset + 1)


def rows_per_block(rows: int) -> int:
    """Return the number of rows of a block."""
    return min(rows, max(_FEWEST_ROWS, -(-rows // _BLOCKS)))


class ByColumn(torch.autograd.Function):
    """Order products by column instead of distance, for all rows at once: [B, H, T, T + S - 1] -> a view [B, H, T, S]."""

    @staticmethod
    def forward(ctx, along: Tensor, columns: int) -> Tensor:
        if along.stride(3) != 1 or along.stride(2) < along.size(3):  # the rows overlap, or are not contiguous
            along = along.contiguous()
        ctx.strides = along.stride()
        return _by_column(along, columns, 2)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return ByDistance.apply(grad, ctx.strides), None


class ByDistance(torch.autograd.Function):
    """Order scores by distance instead of column, for all rows at once: [B, H, T, S] -> [B, H, T, T + S - 1].

    In each row, distances that do not occur have score 0. `strides` are the strides of the result.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, strides: tuple[int, ...]) -> Tensor:
        *leading, rows, ctx.columns = scores.shape
        along = scores.new_empty_strided((*leading, rows, rows + ctx.columns - 1), strides).zero_()
        _place(scores, along, 2)
        return along

    @staticmethod
    def backward(ctx, grad: Tensor):
        return ByColumn.apply(grad, ctx.columns), None


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
    for rows, keys, near in layout.blocks(x.size(1), columns):
        block = x[:, rows]
        along = torch.bmm(block.flatten(1, 2), vectors[:, near].mT).view(*block.shape[:3], -1)
        target[:, rows, :, keys] = _by_column(along, keys.stop - keys.start, 1)
    return out


def _by_distance(scores: Tensor, vectors: Tensor, layout: Layout) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield blocks of rows of the scores [B, H, T, S], with the scores ordered by distance instead of column.

    Each block has three parts: the slice of the rows, the slice of the vectors, and the scores [G, rows * N, W]. In each
    row, distances that do not occur have score 0.
    """
    scores = _grouped(scores, vectors)
    groups, length, size, columns = scores.shape
    along = None
    for rows, keys, near in layout.blocks(length, columns):
        shape = (groups, rows.stop - rows.start, size, near.stop - near.start)
        if along is None or along.shape != shape:  # blocks of equal shape have zeros at the same places
            along = scores.new_zeros(shape)
        _place(scores[:, rows, :, keys], along, 1)
        yield rows, near, along.flatten(1, 2)


def _by_column(along: Tensor, columns: int, axis: int) -> Tensor:
    """Order scores by column instead of distance: [..., rows + columns - 1] -> [..., columns].

    `axis` is the axis of the rows. The result is a view.
    """
    return along[..., along.size(axis) - 1 :].as_strided(*_form_by_column(along, columns, axis))


def _place(scores: Tensor, along: Tensor, axis: int) -> None:
    """Write scores to `along`, ordered by distance. `along` is a whole tensor, not a view that begins later in memory."""
    # torch.compile cannot write to a view of a view
    along.as_strided(*_form_by_column(along, scores.size(-1), axis), along.size(axis) - 1).copy_(scores)


def _form_by_column(along: Tensor, columns: int, axis: int) -> tuple[list[int], list[int]]:
    """Return the shape and the strides of `_by_column`."""
    strides = list(along.stride())
    strides[axis] -= 1  # each row starts one distance earlier than the row above
    return [*along.shape[:-1], columns], strides


def _grouped(x: Tensor, vectors: Tensor) -> Tensor:
    """Group heads by table: [B, H, T, D] -> [G, T, N, D], with G tables and N vectors per table and position.

    If x is contiguous, the result is a view.
    """
    return x.permute(2, 0, 1, 3).flatten(1, 2).unsqueeze(0) if vectors.size(0) == 1 else x.permute(1, 2, 0, 3)


def _ungrouped(x: Tensor, sizes: torch.Size) -> Tensor:
    """Invert `_grouped`: [G, T, N, D] -> [B, H, T, D]. The result is a view."""
    return x[0].unflatten(1, sizes).permute(1, 2, 0, 3) if x.size(0) == 1 else x.permute(2, 0, 1, 3)

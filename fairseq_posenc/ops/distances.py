"""Matrices over queries and keys that depend on their distance alone."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from ..contract import PositionError, Positions

#: rows of a matrix whose diagonals are summed at a time
_ROWS = 64


def distances(queries: Positions, keys: Positions) -> Tensor:
    """Key position minus query position: [B or 1, T, S]."""
    return keys.ids.unsqueeze(-2) - queries.ids.unsqueeze(-1)


def diagonals(queries: Positions, keys: Positions) -> Tensor | None:
    """The T + S - 1 distances that occur, ascending, where both sides are counted; None where they are not.

    Distance s - t of column s and row t stands at index s - t + T - 1.
    """
    if queries.start is None or keys.start is None:
        return None
    rows, columns = queries.ids.size(1), keys.ids.size(1)
    first = keys.start - (queries.start + rows - 1)
    return torch.arange(first, first + rows + columns - 1, device=keys.ids.device)


def table_row(distance: Tensor, limit: int) -> Tensor:
    """The row of a distance in a table of 2 * limit + 1 rows, clipped; raises PositionError for fractions."""
    return whole(distance).clamp(-limit, limit) + limit


def whole(positions: Tensor) -> Tensor:
    """The positions or distances as they are; raises PositionError for fractions, which no table has rows for."""
    if positions.is_floating_point():
        raise PositionError("a table of positions needs whole ones, and another method of the spec makes fractions of them")
    return positions


def toeplitz(values: Tensor, columns: int) -> Tensor:
    """[..., T + S - 1] along ascending distances -> [..., T, S], without an index tensor or a scatter in its gradient."""
    return _Toeplitz.apply(values, columns)


class _Toeplitz(torch.autograd.Function):
    """Its gradient is `_Diagonals`, on a CPU many times faster than torch's of `unfold`."""

    @staticmethod
    def forward(ctx, values: Tensor, columns: int) -> Tensor:
        return values.unfold(-1, columns, 1).flip(-2)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _Diagonals.apply(grad), None


class _Diagonals(torch.autograd.Function):
    """Sums along the diagonals: [..., T, S] -> [..., T + S - 1], in blocks of rows that fit a core's cache."""

    @staticmethod
    def forward(ctx, matrix: Tensor) -> Tensor:
        *leading, rows, columns = matrix.shape
        ctx.columns = columns
        sums = matrix.new_zeros(*leading, rows + columns - 1)
        height = min(_ROWS, rows)
        # what is written as rows and read as rows that are one longer begins one further to the left in every row
        skewed = matrix.new_zeros(*leading, height, columns + height)
        block = skewed.flatten(-2)[..., height - 1 : -1].unflatten(-1, (height, -1))[..., :columns]
        for start in range(0, rows, height):
            count = min(height, rows - start)
            block[..., : height - count, :] = 0
            block[..., height - count :, :] = matrix[..., start : start + count, :]
            first, width = rows - start - count, columns + count - 1
            sums[..., first : first + width] += skewed.sum(-2)[..., :width]
        return sums

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _Toeplitz.apply(grad, ctx.columns)


def by_distance(queries: Positions, keys: Positions, values: Callable[[Tensor], Tensor]) -> Tensor:
    """`values` maps distances [...] to [H or 1, ...]; the result is [B or 1, H or 1, T, S]."""
    along = diagonals(queries, keys)
    if along is not None:
        return toeplitz(values(along), keys.ids.size(1)).unsqueeze(0)
    return values(distances(queries, keys)).transpose(0, 1)  # [H, B, T, S] -> [B, H, T, S]


def from_table(table: Tensor, queries: Positions, keys: Positions) -> Tensor:
    """A table [H or 1, 2 * limit + 1] of the distances -limit to limit, its ends used beyond -> [B or 1, H or 1, T, S]."""
    return by_distance(queries, keys, lambda distance: table[:, table_row(distance, table.size(1) // 2)])

"""Distances between queries and keys, and matrices [T, S] that depend only on the distance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..core import PositionError, Positions
from .kernels.toeplitz import Toeplitz


def distances(queries: Positions, keys: Positions) -> Tensor:
    """Return key position minus query position: [B or 1, T, S]."""
    return keys.ids.unsqueeze(-2) - queries.ids.unsqueeze(-1)


def diagonals(queries: Positions, keys: Positions) -> Tensor | None:
    """Return the T + S - 1 possible distances in ascending order.

    Return None unless `start` of queries and keys is set (see `Positions`). The distance between query t and key s has the
    index s - t + T - 1.
    """
    if queries.start is None or keys.start is None:
        return None
    rows, columns = queries.ids.size(1), keys.ids.size(1)
    first = keys.start - (queries.start + rows - 1)
    return torch.arange(first, first + rows + columns - 1, device=keys.ids.device)


def table_row(distance: Tensor, limit: int) -> Tensor:
    """Return the row index of each distance in a table with one row per distance from -limit to limit.

    Longer distances use the first or last row. Raise PositionError for floating-point distances.
    """
    return require_integer(distance).clamp(-limit, limit) + limit


def require_integer(positions: Tensor) -> Tensor:
    """Return positions or distances unchanged.

    Raise PositionError for floating-point tensors, because tables only have rows for integers.
    """
    if positions.is_floating_point():
        raise PositionError(
            "positions: a table requires integer positions only, but another method of the spec produces fractional positions. "
            "Remove one of the two methods."
        )
    return positions


def toeplitz(values: Tensor, columns: int) -> Tensor:
    """Expand one value per distance, in ascending order, to a matrix: [..., T + S - 1] -> [..., T, S].

    The computation needs no index tensor, and its gradient needs no scatter.
    """
    return Toeplitz.apply(values, columns)


def by_distance(queries: Positions, keys: Positions, values: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to all distances between queries and keys, and return the matrix [B or 1, H or 1, T, S].

    The function `values` maps distances [...] to [H or 1, ...]. If all sentences have the same consecutive positions (counted
    positions, see `Positions`), `values` receives each distance only once.
    """
    ascending = diagonals(queries, keys)
    if ascending is not None:
        return toeplitz(values(ascending), keys.ids.size(1)).unsqueeze(0)
    return values(distances(queries, keys)).transpose(0, 1)  # [H, B, T, S] -> [B, H, T, S]


def from_table(table: Tensor, queries: Positions, keys: Positions) -> Tensor:
    """Read a table of the distances -limit to limit: [H or 1, 2 * limit + 1] -> [B or 1, H or 1, T, S].

    Longer distances use the first or last entry.
    """
    return by_distance(queries, keys, lambda distance: table[:, table_row(distance, table.size(1) // 2)])

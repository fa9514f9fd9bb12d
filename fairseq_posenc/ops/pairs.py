"""Read tables with one row per position, or with one entry per pair of positions."""

from torch import Tensor

from ..core import Positions
from .distances import require_integer


def pairs(table: Tensor, queries: Positions, keys: Positions) -> Tensor:
    """Read a table at all pairs of query and key positions: [H or 1, n, m, ...] -> [B or 1, H or 1, T, S, ...].

    If `Positions.start` is set for queries and keys, the result is a view of the table.
    """
    if queries.start is not None and keys.start is not None:
        of_queries = slice(queries.start, queries.start + queries.ids.size(1))
        of_keys = slice(keys.start, keys.start + keys.ids.size(1))
        return table[:, of_queries, of_keys].unsqueeze(0)
    return table[:, require_integer(queries.ids).unsqueeze(-1), require_integer(keys.ids).unsqueeze(-2)].transpose(0, 1)


def rows(table: Tensor, at: Positions) -> Tensor:
    """Read the rows of a table at positions [B or 1, T]: [H or 1, n, width] -> [B or 1, H or 1, T, width].

    If all sentences have the same consecutive positions (counted positions, see `Positions`), the result is a view of the
    table.
    """
    if at.start is not None:
        return table[:, at.start : at.start + at.ids.size(1)].unsqueeze(0)
    return table[:, require_integer(at.ids)].transpose(0, 1)  # [H or 1, B or 1, T, width] -> [B or 1, H or 1, T, width]

"""Tables of absolute positions and of pairs of them."""

from torch import Tensor

from ..contract import Positions
from .distances import whole


def pairs(table: Tensor, queries: Positions, keys: Positions) -> Tensor:
    """[H or 1, n, m, ...] at pairs of positions -> [B or 1, H or 1, T, S, ...]; a view where both sides are counted."""
    if queries.start is not None and keys.start is not None:
        rows = slice(queries.start, queries.start + queries.ids.size(1))
        columns = slice(keys.start, keys.start + keys.ids.size(1))
        return table[:, rows, columns].unsqueeze(0)
    return table[:, whole(queries.ids).unsqueeze(-1), whole(keys.ids).unsqueeze(-2)].transpose(0, 1)


def rows(table: Tensor, at: Positions) -> Tensor:
    """[H or 1, n, width] at positions [B or 1, T] -> [B or 1, H or 1, T, width]; a view where they are counted."""
    if at.start is not None:
        return table[:, at.start : at.start + at.ids.size(1)].unsqueeze(0)
    return table[:, whole(at.ids)].transpose(0, 1)

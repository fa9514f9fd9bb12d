"""Tables of pairs of absolute positions."""

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

"""From logits per clipped distance to logits per key, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from ..contract import Positions
from .distances import distances, table_row


def clipped(queries: Positions, keys: Positions, limit: int) -> Tensor:
    """The row of a table of 2 * limit + 1 distances for every query and key: [B or 1, T, S]."""
    return table_row(distances(queries, keys), limit)


def spread(logits: Tensor, rows: Tensor) -> Tensor:
    """[B, H, T, W] at rows [B or 1, T, S] of its last axis -> [B, H, T, S]."""
    index = rows.unsqueeze(1).expand(logits.size(0), logits.size(1), -1, -1)
    return logits.gather(-1, index)


def collect(probs: Tensor, rows: Tensor, width: int) -> Tensor:
    """Sums probs [B, H, T, S] over the keys that share a row of a table: [B, H, T, width], summed in float32."""
    index = rows.unsqueeze(1).expand(probs.size(0), probs.size(1), -1, -1)
    summed = probs.new_zeros(*probs.shape[:-1], width, dtype=torch.promote_types(probs.dtype, torch.float32))
    return summed.scatter_add(-1, index, probs.to(summed.dtype)).to(probs.dtype)

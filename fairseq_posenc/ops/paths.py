"""Paths between words as labels of their edges: the different ones of a batch, and which of them joins two words."""

from __future__ import annotations

import torch
from torch import Tensor

#: the largest number that a key may become
_ROOM = 2**62


def unique_paths(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[B, S, S, slots] labels below `count` -> the different paths [P, slots], and the number of every pair's [B, S, S]."""
    key, size = labels[..., 0].long(), count
    for slot in labels.unbind(-1)[1:]:
        if size * count > _ROOM:  # number the different beginnings anew
            found, key = key.unique(return_inverse=True)
            size = len(found)
        key, size = key * count + slot, size * count
    found, index = key.unique(return_inverse=True)
    example = torch.empty_like(found)
    example[index.flatten()] = torch.arange(index.numel(), device=index.device)  # of equal ones any
    return labels.flatten(0, -2)[example].long(), index

"""Find the different paths of a batch. A path between two words is a list of edge labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .trees import NOTHING

#: maximum of a key
_ROOM = 2**62


def unique_paths(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the different paths and the path number of every pair of words.

    Labels below `count` [B, S, S, slots] -> paths [P, slots] and numbers [B, S, S].
    """
    first, *others = labels.unbind(-1)
    found, index = _keys(first.long(), count, others, count).unique(return_inverse=True)
    example = torch.empty_like(found)
    example[index.flatten()] = torch.arange(index.numel(), device=index.device)  # the number of any of the equal paths
    return labels.flatten(0, -2)[example].long(), index


def paths_by_length(labels: Tensor, count: int) -> tuple[Tensor, Tensor, list[int]]:
    """Return the different paths from long to short, the path number of every pair of words, and the paths of each step.

    Step t reads label t of all paths with more than t labels. These paths are the first ones, because paths are ordered from
    long to short. A path without labels is read as one label. The host reads one tensor. Labels below `count` [B, S, S, slots]
    -> [P, slots], [B, S, S] and a list of numbers of paths.
    """
    slots = labels.size(-1)
    lengths = (labels != NOTHING).sum(-1).clamp(min=1)
    key, order = _keys(slots - lengths, slots, labels.unbind(-1), count).flatten().sort()
    first = F.pad(key[1:] != key[:-1], (1, 0), value=True)  # whether it is the first of equal paths
    number = first.cumsum(0) - 1
    index = torch.empty_like(order).scatter_(0, order, number).view(lengths.shape)
    steps = torch.arange(slots, device=labels.device)
    longer = ((lengths.flatten()[order].unsqueeze(1) > steps) & first.unsqueeze(1)).sum(0).tolist()
    example = order.new_empty(longer[0]).scatter_(0, number, order)  # the number of any of the equal paths
    return labels.flatten(0, -2)[example].long(), index, [paths for paths in longer if paths]


def _keys(first: Tensor, size: int, others: Sequence[Tensor], count: int) -> Tensor:
    """Return one integer for each list of numbers. The first numbers are below `size`, and the other numbers below `count`."""
    key = first
    for slot in others:
        if size * count > _ROOM:  # replace the keys of beginnings by consecutive numbers
            found, key = key.unique(return_inverse=True)
            size = len(found)
        key, size = key * count + slot, size * count
    return key

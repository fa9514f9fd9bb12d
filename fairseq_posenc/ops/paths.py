"""Find the distinct paths between words in a batch. A path is a list of edge labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .trees import NOTHING

#: maximum value of the integer that encodes a path (see `_keys`)
_ROOM = 2**62


def unique_paths(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the distinct paths [P, slots], and the index of the path of every pair of tokens [B, S, S].

    `labels` [B, S, S, slots] contains the paths of all pairs of tokens. Labels are below `count`.
    """
    first, *others = labels.unbind(-1)
    found, index = _keys(first.long(), count, others, count).unique(return_inverse=True)
    example = torch.empty_like(found)
    example[index.flatten()] = torch.arange(index.numel(), device=index.device)  # one pair of tokens with this path
    return labels.flatten(0, -2)[example].long(), index


def paths_by_length(labels: Tensor, count: int) -> tuple[Tensor, Tensor, list[int]]:
    """Return the distinct paths, the index of the path of every pair of tokens, and a list with the number of paths per step.

    The distinct paths have the shape [P, slots], and are sorted from long to short. The indices have the shape [B, S, S].

    A recurrent network reads the paths in steps. Step t reads label t of all paths with more than t labels. These paths are the
    first paths, because the paths are sorted by length. The list contains the number of these paths for each step.

    `labels` [B, S, S, slots] contains the paths of all pairs of tokens. Labels are below `count`. A path without labels is
    treated as a path of one label. The CPU waits for the accelerator once. `_keys` encodes
    each path as an integer. The CPU also waits each time `_keys` replaces these integers by consecutive integers.
    """
    slots = labels.size(-1)
    lengths = (labels != NOTHING).sum(-1).clamp(min=1)
    key, order = _keys(slots - lengths, slots, labels.unbind(-1), count).flatten().sort()
    first = F.pad(key[1:] != key[:-1], (1, 0), value=True)  # True at the first of equal paths
    number = first.cumsum(0) - 1
    index = torch.empty_like(order).scatter_(0, order, number).view(lengths.shape)
    steps = torch.arange(slots, device=labels.device)
    longer = ((lengths.flatten()[order].unsqueeze(1) > steps) & first.unsqueeze(1)).sum(0).tolist()
    example = order.new_empty(longer[0]).scatter_(0, number, order)  # one pair of tokens with this path
    return labels.flatten(0, -2)[example].long(), index, [paths for paths in longer if paths]


def _keys(first: Tensor, size: int, others: Sequence[Tensor], count: int) -> Tensor:
    """Encode each list of numbers as one integer. The first number is below `size`, and the other numbers are below `count`."""
    key = first
    for slot in others:
        if size * count > _ROOM:  # replace the keys by consecutive integers, which are smaller
            found, key = key.unique(return_inverse=True)
            size = len(found)
        key, size = key * count + slot, size * count
    return key

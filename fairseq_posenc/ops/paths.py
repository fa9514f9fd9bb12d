"""Find the different paths of a batch. A path between two words is a list of edge labels."""

from __future__ import annotations

import torch
from torch import Tensor

#: maximum of a key
_ROOM = 2**62


def unique_paths(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the different paths and the path number of every pair of words.

    Labels below `count` [B, S, S, slots] -> paths [P, slots] and numbers [B, S, S].
    """
    key, size = labels[..., 0].long(), count
    for slot in labels.unbind(-1)[1:]:
        if size * count > _ROOM:  # replace the keys of beginnings by consecutive numbers
            found, key = key.unique(return_inverse=True)
            size = len(found)
        key, size = key * count + slot, size * count
    found, index = key.unique(return_inverse=True)
    example = torch.empty_like(found)
    example[index.flatten()] = torch.arange(index.numel(), device=index.device)  # any of equal paths
    return labels.flatten(0, -2)[example].long(), index

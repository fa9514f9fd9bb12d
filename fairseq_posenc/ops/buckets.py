"""Buckets of distances, as in T5."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_buckets(delta: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Map key positions minus query positions, integers [...], to buckets [...].

    The first half of the buckets contains one distance each. The second half divides the distances up to `max_distance` evenly on
    a logarithmic scale. The last bucket contains all longer distances. With `bidirectional`, each direction has half of the
    buckets, and keys on the right use the upper half. Otherwise all keys on the right are in bucket 0.
    """
    if bidirectional:
        buckets //= 2
        offset, distance = (delta > 0).long() * buckets, delta.abs()
    else:
        offset, distance = 0, (-delta).clamp(min=0)
    exact = buckets // 2
    # in float32, because half precision would move distances to other buckets
    log = torch.log(distance.clamp(min=exact).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    return offset + torch.where(distance < exact, distance.long(), (exact + log.long()).clamp(max=buckets - 1))

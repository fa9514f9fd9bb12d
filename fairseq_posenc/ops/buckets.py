"""Buckets of distances, as in T5."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_buckets(delta: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Maps key positions minus query positions, integers [...], to buckets [...].

    The first half of the buckets holds one distance each; the second half divides the distances up to `max_distance` evenly by
    their logarithm, and its last bucket holds all beyond. `bidirectional` makes these for each side, with the upper half of the
    buckets for keys on the right; otherwise all keys on the right are in bucket 0.
    """
    if bidirectional:
        buckets //= 2
        offset, distance = (delta > 0).long() * buckets, delta.abs()
    else:
        offset, distance = 0, (-delta).clamp(min=0)
    exact = buckets // 2
    # in float32: half precision would move distances to other buckets
    log = torch.log(distance.clamp(min=exact).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    return offset + torch.where(distance < exact, distance.long(), (exact + log.long()).clamp(max=buckets - 1))

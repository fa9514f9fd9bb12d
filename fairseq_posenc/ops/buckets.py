"""Distances to buckets, as T5 does it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_buckets(delta: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Integer distances [...] to buckets [...]: near ones have their own, far ones share one by the logarithm.

    Bidirectional buckets give the upper half to keys on the right; unidirectional ones put all keys on the right in bucket 0.
    """
    if bidirectional:
        buckets //= 2
        offset, away = (delta > 0).long() * buckets, delta.abs()
    else:
        offset, away = 0, (-delta).clamp(min=0)
    exact = buckets // 2
    # logarithms in float32 of integers: half precision would move buckets
    far = torch.log(away.clamp(min=exact).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    return offset + torch.where(away < exact, away.long(), (exact + far.long()).clamp(max=buckets - 1))

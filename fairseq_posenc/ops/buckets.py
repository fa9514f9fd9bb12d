"""Buckets of distances, as in T5."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_buckets(delta: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Map distances (key position minus query position, [...]) to indices of buckets [...]. Fractions are rounded.

    With `bidirectional`, each direction has half of the buckets: keys on the right use the upper half. Without `bidirectional`,
    all buckets are for keys on the left, and all keys on the right are in bucket 0.

    In each direction, the first half of the buckets contains one distance per bucket. The second half of the buckets divides
    the remaining distances up to `max_distance` evenly on a logarithmic scale. The last bucket also contains all longer
    distances.
    """
    if delta.is_floating_point():
        delta = delta.round()
    if bidirectional:
        buckets //= 2
        offset, distance = (delta > 0).long() * buckets, delta.abs()
    else:
        offset, distance = 0, (-delta).clamp(min=0)
    exact = buckets // 2
    # compute in float32, because rounding in half precision would change the bucket of some distances
    log = torch.log(distance.clamp(min=exact).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    return offset + torch.where(distance < exact, distance.long(), (exact + log.long()).clamp(max=buckets - 1))

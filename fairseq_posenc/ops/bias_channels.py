"""Replace a bias of low rank by additional channels of queries and keys, so that no bias matrix is needed (Wu et al. 2025)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: a float32 number is the sum of this many half-precision numbers
_PIECES = {torch.bfloat16: 3, torch.float16: 3}
#: a factor with more channels is a vector. It is rounded like queries and keys, and not split
_MOST_SPLIT = 2
#: factors of keys, which can be large numbers, are divided by this number. In float16, the largest factor is then 2^20
_LARGE = {torch.float16: 16.0}
#: fused kernels require head widths that are multiples of this number
_WIDTH = 8


class Channels(NamedTuple):
    """Contain the additional channels of queries [B or 1, H or 1, T or 1, channels] and of keys [B or 1, H or 1, S, channels]."""

    of_queries: list[Tensor]
    of_keys: list[Tensor]


def channels(of_query: Tensor, of_key: Tensor, dtype: torch.dtype, scale: float) -> Channels:
    """Convert two factors of a bias to channels for a kernel that computes softmax(scale q k^T) v.

    Args:
        of_query, of_key: factors of the bias, [B or 1, H or 1, T or 1, R] and [B or 1, H or 1, S, R]. The bias is
            of_query of_key^T.
        dtype: the type of the channels. In half precision, the factors are rounded. Exception: one or two channels of keys, which
            can be large numbers, are each split into a sum of several half-precision channels.
        scale: the factor of q k^T.
    """
    split = of_key.size(-1) <= _MOST_SPLIT
    pieces, large = (_PIECES.get(dtype, 1), _LARGE.get(dtype, 1.0)) if split else (1, 1.0)
    of_key = of_key if large == 1.0 else of_key / large
    return Channels([(of_query * (large / scale)).to(dtype)] * pieces, _split(of_key, dtype, pieces))


def with_channels(q: Tensor, k: Tensor, v: Tensor, added: Channels) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of equal width: q [B, H, T, D], and k and v [B, H, S, D], with the channels.

    The width is a multiple of 8. The other additional channels, and all those of the values, are 0.
    """
    width = sum(x.size(-1) for x in added.of_keys)
    rest = width + -(q.size(-1) + width) % _WIDTH
    zeros = q.new_zeros(1)
    q = torch.cat([q, *[_like(q, x) for x in added.of_queries], _like(q, zeros, rest - width)], -1)
    k = torch.cat([k, *[_like(k, x) for x in added.of_keys], _like(k, zeros, rest - width)], -1)
    return q, k, torch.cat([v, _like(v, zeros, rest)], -1)


def _like(x: Tensor, values: Tensor, channels: int = -1) -> Tensor:
    """Expand `values` to the first three axes of x [B, H, T, D]: [B, H, T, channels].

    With channels=-1, the number of channels of `values` is unchanged.
    """
    return values.expand(*x.shape[:3], channels)


def _split(x: Tensor, dtype: torch.dtype, pieces: int) -> list[Tensor]:
    """Split x into `pieces` tensors of the type `dtype`.

    The first tensor is x, rounded to `dtype`. Each further tensor is x minus the sum of all tensors before it, rounded to
    `dtype`. The sum of all tensors is x, except for the rounding of the last tensor.
    """
    found = []
    for _ in range(pieces - 1):
        found.append(x.to(dtype))
        x = (x - found[-1]).detach()  # only the first tensor has a gradient, because the gradient of the sum is that of x
    return [*found, x.to(dtype)]

"""Replace a bias of low rank by additional channels of queries and keys, so that no bias matrix is needed (Wu et al. 2025)."""

from __future__ import annotations

import torch
from torch import Tensor

#: a float32 number is the sum of this many half-precision numbers
_PIECES = {torch.bfloat16: 3, torch.float16: 3}
#: fused kernels require head widths that are multiples of this number
_WIDTH = 8


def with_channels(
    q: Tensor, k: Tensor, v: Tensor, of_query: Tensor, of_key: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of equal width for a kernel that computes softmax(scale q k^T) v.

    Args:
        q, k, v: [B, H, T, D] for q, and [B, H, S, D] for k and v.
        of_query, of_key: factors of the bias, [B or 1, H or 1, T or 1, R] and [B or 1, H or 1, S, R]. The bias is
            of_query of_key^T. If q is in half precision, the factors of queries are rounded to half precision. In this case,
            each factor of keys is split into a sum of several half-precision channels, and is not rounded.
        scale: the factor of q k^T.
    """
    pieces = _PIECES.get(q.dtype, 1)
    of_query = (of_query / scale).to(q.dtype)
    of_keys = _split(of_key, q.dtype, pieces)
    added = pieces * of_key.size(-1)
    rest = added + -(q.size(-1) + added) % _WIDTH
    zeros = q.new_zeros(1)
    q = torch.cat([q, *[_like(q, of_query)] * pieces, _like(q, zeros, rest - added)], -1)
    k = torch.cat([k, *[_like(k, piece) for piece in of_keys], _like(k, zeros, rest - added)], -1)
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
        x = x - found[-1].detach()
    return [*found, x.to(dtype)]

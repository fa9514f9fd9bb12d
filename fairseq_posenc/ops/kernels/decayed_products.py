"""Products of queries and keys, with channels that decay between key and query."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .. import devices
from .derivatives import first_derivative_only

#: maximum number of factors in a block; on a CPU they fit into the cache of a core
_HELD_ON_CPU, _HELD = 2**18, 2**28


class DecayedProducts(torch.autograd.Function):
    """Compute sum_i q_ti k_si exp(p_ti - r_si): q, p [B, H, T, D] and k, r [B, H, S, D] -> [B, H, T, S].

    Equation: y_ts = sum_i q_ti k_si f_tsi with f_tsi = exp(p_ti - r_si). With g the gradient of y, the gradient of q_ti is u_ti
        = sum_s g_ts k_si f_tsi, and the gradient of k_si is w_si = sum_t g_ts q_ti f_tsi. The gradient of p is q u, and the
        gradient of r is -k w.

    Exponents are positive only for later keys, and are then replaced by 0. The factors [B, H, T, S, D] are computed in blocks of
    queries, also in the backward pass, and are not stored. With `causal`, keys after a block are left out.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, p: Tensor, r: Tensor, causal: bool) -> Tensor:
        ctx.causal = causal
        ctx.save_for_backward(q, k, p, r)
        out = q.new_zeros(*q.shape[:3], k.size(2))
        for some, seen in _blocks(q, k, causal):
            factors = _factors(p[:, :, some], r[:, :, seen]).mul_(k[:, :, seen].unsqueeze(2))
            out[:, :, some, seen] = (factors @ q[:, :, some].unsqueeze(-1)).squeeze(-1)
        return out

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        q, k, p, r = ctx.saved_tensors
        of_q, of_k = torch.empty_like(q), torch.zeros_like(k)
        for some, seen in _blocks(q, k, ctx.causal):
            factors = _factors(p[:, :, some], r[:, :, seen]).mul_(grad[:, :, some, seen].unsqueeze(-1))
            of_q[:, :, some] = (factors * k[:, :, seen].unsqueeze(2)).sum(3)
            of_k[:, :, seen] += factors.mul_(q[:, :, some].unsqueeze(3)).sum(2)
        return of_q, of_k, q * of_q, -k * of_k, None


def _factors(p: Tensor, r: Tensor) -> Tensor:
    """Return the factors exp(p - r) of a block: [B, H, c, D] and [B, H, S, D] -> [B, H, c, S, D]."""
    return (p.unsqueeze(3) - r.unsqueeze(2)).clamp_(max=0).exp_()


def _blocks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of queries, and the keys that each block needs."""
    size = max(1, (_HELD_ON_CPU if devices.on_cpu(k) else _HELD) // k.numel())
    for first in range(0, q.size(2), size):
        end = min(first + size, q.size(2))
        yield slice(first, end), slice(0, end if causal else k.size(2))

"""Compute the sum of the logarithms of all gates after each key."""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import softplus
from .derivatives import first_derivative_only
from .outputs import sums_from_zero, write


class GateSums(torch.autograd.Function):
    """Return y_ts = sum_j m_tj ln sigmoid(e_tj) over all keys j after s: e [B, H, T, S] -> the same shape.

    With `from_key`, the sum includes key s. With g the gradient of y, the gradient of e_tj is m_tj sigmoid(-e_tj) sum_s g_ts over
    all keys s before j. With `from_key`, the sum of g_ts includes key j.
    Args:
        edges: e, in float32 or wider.
        counted: m, bool [B or 1, 1, T, S].
    Cost: stores the edges.
    """

    @staticmethod
    def forward(ctx, edges: Tensor, counted: Tensor, from_key: bool) -> Tensor:
        ctx.save_for_backward(edges, counted)
        ctx.from_key = from_key
        lost = softplus(-edges)  # -ln sigmoid(e)
        sums = lost.new_empty(*lost.shape[:-1], lost.size(-1) + 1)
        write(sums[..., 1:], torch.where, counted, lost, lost.new_zeros(()))
        sums[..., :1] = -sums[..., 1:].sum(-1, keepdim=True)
        sums.cumsum_(-1)
        return sums[..., :-1] if from_key else sums[..., 1:]

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        edges, counted = ctx.saved_tensors
        sums = sums_from_zero(grad)
        before = sums[..., 1:] if ctx.from_key else sums[..., :-1]
        write(before, torch.where, counted, before, before.new_zeros(()))
        return torch.addcmul(before, before, edges.sigmoid(), value=-1), None, None

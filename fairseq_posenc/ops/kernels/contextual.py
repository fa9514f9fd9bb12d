"""Products of queries with vectors at contextual positions, which are sums of gates."""

from __future__ import annotations

import torch
from torch import Tensor

from .derivatives import first_derivative_only


class ContextualProducts(torch.autograd.Function):
    """Read products [B, H, T, P] at the sums of gates between key and query: scores, hidden -> [B, H, T, S].

    Equation: y_ts = (1 - w) c_t,i + w c_t,i+1 with p = min(sum_j sigmoid(a_tj), P - 1), i = floor(p), w = p - i. The sum runs
        from key s to the last key that is not hidden. With `from_first`, the sum runs from the first key that is not hidden to
        key s. With g the gradient of y, the gradient of p_ts is g_ts (c_t,i+1 - c_t,i).
    Args:
        scores: a, [B, H, T, S], in any precision.
        products: c, [B, H, T, P], in float32 or wider.
        hidden: 0, or -inf for keys that do not count, [B or 1, 1, T or 1, S], in float32 or wider.
        from_first: direction of the sum.
    Cost: stores four numbers per score. Two neighbouring products are one complex number, so that one gather reads both.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, products: Tensor, hidden: Tensor, from_first: bool) -> Tensor:
        gates = (scores + hidden).sigmoid_()
        positions = gates.cumsum(-1) if from_first else gates.flip(-1).cumsum_(-1).flip(-1)
        last = positions.new_full((), products.size(-1) - 1)
        # in a sentence of padding only, the position is nan, and becomes the last position
        torch.fmin(positions, last, out=positions)
        index = positions.long()
        weight = positions.frac_()
        following = torch.cat([products[..., 1:], products[..., -1:]], -1)
        pairs = torch.view_as_real(torch.complex(products, following).gather(-1, index))  # [B, H, T, S, 2]
        slope = pairs[..., 1] - pairs[..., 0]
        ctx.save_for_backward(gates, index, weight, slope)
        ctx.form = products.shape, scores.dtype, from_first
        return torch.addcmul(pairs[..., 0], weight, slope)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        gates, index, weight, slope = ctx.saved_tensors
        shape, dtype, from_first = ctx.form
        of_scores = of_products = None
        if ctx.needs_input_grad[0]:
            of_positions = grad * slope
            sums = of_positions.flip(-1).cumsum_(-1).flip(-1) if from_first else of_positions.cumsum_(-1)
            of_scores = torch.ops.aten.sigmoid_backward(sums, gates).to(dtype)
        if ctx.needs_input_grad[1]:
            of_products = grad.new_zeros(shape).scatter_add_(-1, index, grad)
            further = grad.new_zeros(shape).scatter_add_(-1, index, grad * weight)  # 0 at the last product
            of_products -= further
            of_products[..., 1:] += further[..., :-1]
        return of_scores, of_products, None, None

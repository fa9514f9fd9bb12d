"""Scores that fall with the square of the distance to a learned centre."""

from __future__ import annotations

import torch
from torch import Tensor

from .derivatives import first_derivative_only
from .outputs import write


class Parabolas(torch.autograd.Function):
    """Return y_ts = -2 d_ts^2 for all pairs of query t and key s, where d_ts = (p_s - c_t) / w_t.

    With g the gradient of y, the gradient of c_t is 4 sum_s g_ts d_ts / w_t. The gradient of w_t is 4 sum_s g_ts d_ts^2 / w_t.
    Args:
        centres, windows: c and w, [B or 1, H or 1, T or 1, 1], in float32 or wider.
        positions: p, [B or 1, 1, 1, S], without a gradient.
        dtype: the type of the result. Squares are computed in the type of the distances.
    Cost: a tensor [T, S] is not stored, because the backward pass computes the distances again.
    """

    @staticmethod
    def forward(ctx, centres: Tensor, windows: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(centres, windows, positions)
        distances = (positions - centres) / windows
        zero = distances.new_zeros(())
        return write(torch.empty_like(distances, dtype=dtype), torch.addcmul, zero, distances, distances, value=-2)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        centres, windows, positions = ctx.saved_tensors
        distances, of_centres, of_windows = (positions - centres) / windows, None, None
        products = grad * distances
        if ctx.needs_input_grad[0]:
            of_centres = (4 * products.sum(-1, keepdim=True) / windows).sum_to_size(centres.shape)
        if ctx.needs_input_grad[1]:
            of_windows = (4 * products.mul_(distances).sum(-1, keepdim=True) / windows).sum_to_size(windows.shape)
        return of_centres, of_windows, None, None

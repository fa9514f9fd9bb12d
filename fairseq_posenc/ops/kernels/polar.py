"""Vectors in polar coordinates, whose angles have a gradient."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import at_least_float32
from .derivatives import first_derivative_only


class PolarCoordinates(torch.autograd.Function):
    """Multiply magnitudes by the cosines and the sines of angles: x [B, H, T, D] -> [B, H, T, 2 D], all cosines first.

    Equation: y = [softplus(x) cos(phi); softplus(x) sin(phi)], computed in float32 or wider, in the precision of x.
        With [g; h] the gradient of y, the gradient of x is sigmoid(x) (g cos(phi) + h sin(phi)), and the gradient of phi is
        softplus(x) (h cos(phi) - g sin(phi)).
    Args:
        angles: phi, [B or 1, H or 1, T, D], for the gradient only.
        cos, sin: cosines and sines of the angles, without a gradient.
    """

    @staticmethod
    def forward(ctx, x: Tensor, angles: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = F.softplus(at_least_float32(x))
        ctx.save_for_backward(x, size if ctx.needs_input_grad[1] else None, cos, sin)
        ctx.form = angles.shape, angles.dtype
        out = torch.empty(*x.shape[:-1], 2 * x.size(-1), dtype=x.dtype, device=x.device)
        return torch.cat([size * cos, size * sin], -1, out=out)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, size, cos, sin = ctx.saved_tensors
        of_cos, of_sin = grad.chunk(2, -1)
        wide = at_least_float32(x)
        of_size = (of_cos * cos).addcmul_(of_sin, sin)
        of_x = torch.ops.aten.softplus_backward(of_size, wide, 1, 20).to(x.dtype)
        of_angles = None
        if ctx.needs_input_grad[1]:
            shape, dtype = ctx.form
            of_angles = (of_sin * cos).addcmul_(of_cos, sin, value=-1).mul_(size).sum_to_size(shape).to(dtype)
        return of_x, of_angles, None, None

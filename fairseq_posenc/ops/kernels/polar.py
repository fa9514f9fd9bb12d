"""Vectors in polar coordinates, whose angles have a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .derivatives import first_derivative_only
from .outputs import write

#: threshold: from this argument on, the derivative of softplus is 1 in float64
_LINEAR_FROM = 40


class PolarCoordinates(torch.autograd.Function):
    """Multiply magnitudes by the cosines and the sines of angles: x [B, H, T, D] -> [B, H, T, 2 D], all cosines first.

    Equation: y = [softplus(x) cos(phi); softplus(x) sin(phi)]. The computation is in float32 or wider. The result has the
        precision of x.
        With [g; h] the gradient of y, the gradient of x is sigmoid(x) (g cos(phi) + h sin(phi)), and the gradient of phi is
        softplus(x) (h cos(phi) - g sin(phi)).
    Args:
        angles: phi, [B or 1, H or 1, T, D]. The values are not read. The argument is needed for the gradient of phi.
        waves: cosines and sines of the angles, [B or 1, H or 1, T, 2, D], without a gradient.
    """

    @staticmethod
    def forward(ctx, x: Tensor, angles: Tensor, waves: Tensor) -> Tensor:
        size = torch.logaddexp(x, waves.new_zeros(1))  # softplus, which reads half precision and computes in float32
        ctx.save_for_backward(x, size if ctx.needs_input_grad[1] else None, waves)
        ctx.form = angles.shape, angles.dtype
        out = x.new_empty(*x.shape[:-1], 2, x.size(-1))
        return write(out, torch.mul, size.unsqueeze(-2), waves).flatten(-2)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, size, waves = ctx.saved_tensors
        grad, (cos, sin) = grad.unflatten(-1, (2, -1)), waves.unbind(-2)
        of_cos, of_sin = grad.unbind(-2)
        of_size, of_x = (of_cos * cos).addcmul_(of_sin, sin), torch.empty_like(x)
        if torch.compiler.is_compiling():  # torch.compile expects other strides of softplus_backward than its result has
            of_x.copy_(of_size * torch.sigmoid(x.to(of_size.dtype)))
        else:
            torch.ops.aten.softplus_backward(of_size, x, 1, _LINEAR_FROM, grad_input=of_x)
        of_angles = None
        if ctx.needs_input_grad[1]:
            shape, dtype = ctx.form
            summed = (size.unsqueeze(-2) * grad).sum_to_size(*shape[:-1], 2, shape[-1])
            of_angles = (summed[..., 1, :] * cos).addcmul_(summed[..., 0, :], sin, value=-1).to(dtype)
        return of_x, of_angles, None

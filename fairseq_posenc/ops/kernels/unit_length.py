"""Vectors divided by their length."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .derivatives import first_derivative_only

#: largest length of a vector that counts as 0
_SHORTEST = 1e-12


class UnitLength(torch.autograd.Function):
    """Divide vectors [..., D] by their length, in float32 or wider: [..., D] -> same.

    Equation: y = x / |x|. With g the gradient of y, the gradient of x is (g - (g . y) y) / |x|. If |x| is at most
        1e-12, for example after dropout, y and the gradient are 0. Otherwise, the gradient could be too large for float16.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
        F.threshold_(length, _SHORTEST, math.inf)
        y = x / length
        ctx.save_for_backward(y, length)
        ctx.dtype = x.dtype
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        y, length = ctx.saved_tensors
        along = (grad * y).sum(-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1).div_(length).to(ctx.dtype)

"""Rotation of pairs of channels by angles that have a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import at_least_float32
from ..rotation import every_channel, rotated
from .derivatives import first_derivative_only


def rotate_by(x: Tensor, angles: Tensor, layout: str) -> Tensor:
    """Rotate the first pairs of channels of x by learned angles, in float32 or wider.

    Args:
        x: [..., T, D], with at least twice as many channels as there are angles.
        angles: [..., T, pairs], broadcast to x, in radians.
        layout: "halves" pairs channel i with i + pairs, "interleaved" pairs channel 2i with 2i + 1.
    """
    wide, angles = at_least_float32(x), at_least_float32(angles)
    return AngleRotation.apply(wide, angles.to(torch.promote_types(wide.dtype, angles.dtype)), layout).to(x.dtype)


class AngleRotation(torch.autograd.Function):
    """A rotation that stores only its output and the sines and cosines of the angles for its backward pass.

    Equation: y = R(phi) x. With g the gradient of y, the gradient of phi is g_2 y_1 - g_1 y_2, and that of x is R(-phi) g.
    """

    @staticmethod
    def forward(ctx, x: Tensor, angles: Tensor, layout: str) -> Tensor:
        sin, cos = angles.sin(), angles.cos()
        y = rotated(x, *every_channel(sin, cos, layout, x.size(-1)), angles.size(-1), layout)
        ctx.save_for_backward(y, sin, cos)
        ctx.layout = layout
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        y, sin, cos = ctx.saved_tensors
        layout, pairs = ctx.layout, sin.size(-1)
        of_x = of_angles = None
        if ctx.needs_input_grad[0]:
            of_x = rotated(grad, *every_channel(-sin, cos, layout, y.size(-1)), pairs, layout)
        if ctx.needs_input_grad[1]:
            (y_1, y_2), (g_1, g_2) = _pairs(y, pairs, layout), _pairs(grad, pairs, layout)
            of_angles = (g_2 * y_1 - g_1 * y_2).sum_to_size(sin.shape)
        return of_x, of_angles, None


def _pairs(x: Tensor, pairs: int, layout: str) -> tuple[Tensor, Tensor]:
    """Return the first and the second channel of every pair: [..., T, D] -> [..., T, pairs] twice."""
    if layout == "halves":
        return x[..., :pairs], x[..., pairs : 2 * pairs]
    return x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]

"""Rotation of pairs of channels by angles that have a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: sines and cosines of angles, [..., T, pairs] each
SineCosine = tuple[Tensor, Tensor]


def sine_cosine(angles: Tensor) -> SineCosine:
    """Return sines and cosines of angles, without a gradient, in float32 or wider."""
    angles = at_least_float32(angles.detach())
    return angles.sin(), angles.cos()


def rotate_by(x: Tensor, angles: Tensor, layout: str, waves: SineCosine | None = None) -> Tensor:
    """Rotate the first pairs of channels of x by learned angles, in float32 or wider.

    Args:
        x: [..., T, D], with at least twice as many channels as there are angles.
        angles: [..., T, pairs], broadcast to x, in radians.
        layout: "halves" pairs channel i with i + pairs, "interleaved" pairs channel 2i with 2i + 1.
        waves: sines and cosines of the angles, if several tensors use them.
    """
    return AngleRotation.apply(x, angles, *(sine_cosine(angles) if waves is None else waves), layout)


class AngleRotation(torch.autograd.Function):
    """A rotation that stores only its input and the sines and cosines of the angles for its backward pass.

    Equation: y = R(phi) x. With g the gradient of y, the gradient of x is u = R(-phi) g, and the gradient of phi
        is u_2 x_1 - u_1 x_2.
    """

    @staticmethod
    def forward(ctx, x: Tensor, angles: Tensor, sin: Tensor, cos: Tensor, layout: str) -> Tensor:
        ctx.save_for_backward(x, sin, cos)
        ctx.form = layout, angles.shape, angles.dtype
        return _joined(*_turned(_pairs(x, sin.size(-1), layout), sin, cos, 1), x, layout)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        x, sin, cos = ctx.saved_tensors
        layout, shape, dtype = ctx.form
        u_1, u_2 = _turned(_pairs(grad, sin.size(-1), layout), sin, cos, -1)
        of_angles = None
        if ctx.needs_input_grad[1]:
            x_1, x_2 = _pairs(x, sin.size(-1), layout)
            of_angles = (u_2 * x_1).addcmul_(u_1, x_2, value=-1).sum_to_size(shape).to(dtype)
        return _joined(u_1, u_2, grad, layout), of_angles, None, None, None


def _turned(pair: tuple[Tensor, Tensor], sin: Tensor, cos: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Rotate the two channels of every pair forwards (sign=1) or backwards (sign=-1).

    Compute in the precision of the waves or wider.
    """
    x_1, x_2 = pair
    return (x_1 * cos).addcmul_(x_2, sin, value=-sign), (x_2 * cos).addcmul_(x_1, sin, value=sign)


def _joined(y_1: Tensor, y_2: Tensor, x: Tensor, layout: str) -> Tensor:
    """Return x with the channels of its first pairs replaced."""
    parts = [y_1, y_2] if layout == "halves" else [torch.stack([y_1, y_2], -1).flatten(-2)]
    if x.size(-1) > 2 * y_1.size(-1):
        parts.append(x[..., 2 * y_1.size(-1) :])
    return torch.cat(parts, -1, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))


def _pairs(x: Tensor, pairs: int, layout: str) -> tuple[Tensor, Tensor]:
    """Return the first and the second channel of every pair: [..., T, D] -> [..., T, pairs] twice."""
    if layout == "halves":
        return x[..., :pairs], x[..., pairs : 2 * pairs]
    return x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]

"""Rotation of pairs of channels by angles that have a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import devices
from ..precision import at_least_float32
from .derivatives import first_derivative_only
from .outputs import write

#: sines and cosines of angles, [..., T, pairs] each
SineCosine = tuple[Tensor, Tensor]


def sine_cosine(angles: Tensor) -> SineCosine:
    """Return sines and cosines of angles, without a gradient, in float32 or wider."""
    angles = at_least_float32(angles.detach())
    return angles.sin(), angles.cos()


def rotate_by(x: Tensor, angles: Tensor, layout: str, waves: SineCosine | None = None) -> Tensor:
    """Rotate the first pairs of channels of x, one pair per angle. Other channels are unchanged.

    The computation is in float32 or wider. The result has the precision of x.

    Args:
        x: [..., T, D], with at least twice as many channels as there are angles.
        angles: [..., T, pairs], broadcast to x, in radians.
        layout: with "halves", channels i and i + pairs are one pair. With "interleaved", channels 2i and 2i + 1 are one pair.
        waves: the result of `sine_cosine(angles)`, which several tensors can share. None: the function computes the result.
    """
    return AngleRotation.apply(x, angles, *(sine_cosine(angles) if waves is None else waves), layout)


class AngleRotation(torch.autograd.Function):
    """A rotation that stores only its result, and the sines and cosines of the angles.

    Equation: y = R(phi) x. With g the gradient of y, the gradient of x is R(-phi) g, and the gradient of phi is
        g_2 y_1 - g_1 y_2, where 1 and 2 are the two channels of a pair.
    """

    @staticmethod
    def forward(ctx, x: Tensor, angles: Tensor, sin: Tensor, cos: Tensor, layout: str) -> Tensor:
        y = _turned(x, sin, cos, layout, 1)
        ctx.save_for_backward(y if ctx.needs_input_grad[1] else None, sin, cos)
        ctx.form = layout, angles.shape, angles.dtype
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        y, sin, cos = ctx.saved_tensors
        layout, shape, dtype = ctx.form
        of_angles = None
        if ctx.needs_input_grad[1]:
            (g_1, g_2), (y_1, y_2) = (_pairs(given, sin.size(-1), layout).unbind(-2) for given in (grad, y))
            zero = sin.new_zeros(1)  # this zero gives the products the precision of the sines
            of_angles = torch.addcmul(zero, g_2, y_1).addcmul_(g_1, y_2, value=-1).sum_to_size(shape).to(dtype)
        return _turned(grad, sin, cos, layout, -1), of_angles, None, None, None


def _turned(x: Tensor, sin: Tensor, cos: Tensor, layout: str, sign: int) -> Tensor:
    """Rotate the two channels of every pair forwards (sign=1) or backwards (sign=-1).

    Compute in the precision of `sin` and `cos` or wider, and round to the precision of x.
    """
    count, y = sin.size(-1), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    pairs, found = _pairs(x, count, layout), _pairs(y, count, layout).unbind(-2)
    given = pairs.unbind(-2)
    # on a CPU, two products without the dimension of 2 are faster than one with it
    products = [each * cos for each in given] if devices.on_cpu(x) else (pairs * cos.unsqueeze(-2)).unbind(-2)
    for own, other, value in ((0, 1, -sign), (1, 0, sign)):
        write(found[own], torch.addcmul, products[own], given[other], sin, value=value)
    if x.size(-1) > 2 * count:
        y[..., 2 * count :] = x[..., 2 * count :]
    return y


def _pairs(x: Tensor, pairs: int, layout: str) -> Tensor:
    """Return the first and the second channels of every pair: [..., T, D] -> [..., T, 2, pairs]."""
    x = x[..., : 2 * pairs]
    return x.unflatten(-1, (2, pairs)) if layout == "halves" else x.unflatten(-1, (pairs, 2)).mT

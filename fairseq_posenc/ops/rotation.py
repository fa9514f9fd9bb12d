"""Pairs of channels turned by angles."""

from __future__ import annotations

import torch
from torch import Tensor

from .precision import widen


def rotate(x: Tensor, sin: Tensor, cos: Tensor, layout: str) -> Tensor:
    """Turns the first channels of [..., T, D] by angles whose sines are [..., T, pairs]; products are at least float32.

    layout "halves": pairs (i, i + pairs); "interleaved": pairs (2i, 2i + 1). Sines and cosines get no gradient.
    """
    return _Rotation.apply(widen(x), sin, cos, layout).to(x.dtype)


class _Rotation(torch.autograd.Function):
    """Keeps nothing but the waves: the gradient is turned back by them."""

    @staticmethod
    def forward(ctx, x: Tensor, sin: Tensor, cos: Tensor, layout: str) -> Tensor:
        ctx.save_for_backward(sin, cos)
        ctx.layout = layout
        out, width = torch.empty_like(x), 2 * sin.size(-1)
        (a, b), (of_a, of_b) = _pairs(x, width, layout), _pairs(out, width, layout)
        torch.mul(a, cos, out=of_a).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=of_b).addcmul_(a, sin)
        if width < x.size(-1):
            out[..., width:] = x[..., width:]
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        sin, cos = ctx.saved_tensors
        return _Rotation.apply(grad, -sin, cos, ctx.layout), None, None, None


def _pairs(x: Tensor, width: int, layout: str) -> tuple[Tensor, Tensor]:
    """The first and the second channels of all pairs, views [..., pairs] each."""
    if layout == "halves":
        return x[..., : width // 2], x[..., width // 2 : width]
    return x[..., 0:width:2], x[..., 1:width:2]

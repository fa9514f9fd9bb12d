"""Pairs of channels turned by angles."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from ..contract import AttentionContext
from .precision import widen

#: cosines, and sines with the sign of the channel that they belong to, [..., T, D] each
Waves = tuple[Tensor, Tensor]


def every_channel(sin: Tensor, cos: Tensor, layout: str, width: int) -> Waves:
    """Sines and cosines of pairs, [..., T, pairs], for all channels; those beyond the pairs are not turned.

    layout "halves": pairs (i, i + pairs); "interleaved": pairs (2i, 2i + 1).
    """
    rest = width - 2 * sin.size(-1)
    if layout == "halves":
        waves = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
    else:
        waves = torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2)
    pad = torch.nn.functional.pad
    return waves if rest == 0 else (pad(waves[0], (0, rest), value=1.0), pad(waves[1], (0, rest)))


def rotate(x: Tensor, waves: Waves, pairs: int, layout: str) -> Tensor:
    """[..., T, D] -> same, its first pairs of channels turned; products are at least float32, waves get no gradient."""
    turn = _Rotation.apply if torch.is_grad_enabled() else _turned
    return turn(widen(x), *waves, pairs, layout).to(x.dtype)


def once(ctx: AttentionContext, method: Any, key: Any, waves: Callable[[], Waves]) -> Waves:
    """The waves of this key, such as the id of positions, made once a forward for all layers of a method that draws a dict."""
    made = ctx.drawn.get(method, {})
    if key not in made:
        made[key] = waves()
    return made[key]


class _Rotation(torch.autograd.Function):
    """Keeps nothing but the waves: the gradient is turned back by them."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor, pairs: int, layout: str) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.form = pairs, layout
        return _turned(x, cos, sin, pairs, layout)

    @staticmethod
    def backward(ctx, grad: Tensor):
        cos, sin = ctx.saved_tensors
        return _Rotation.apply(grad, cos, -sin, *ctx.form), None, None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, pairs: int, layout: str) -> Tensor:
    """Every channel by its cosine, and the other one of its pair by the sine."""
    if layout == "halves":
        swapped = torch.cat([x[..., pairs : 2 * pairs], x[..., :pairs], x[..., 2 * pairs :]], -1)
    else:
        turned = x[..., : 2 * pairs].unflatten(-1, (pairs, 2)).flip(-1).flatten(-2)
        swapped = torch.cat([turned, x[..., 2 * pairs :]], -1)
    return torch.addcmul(x * cos, swapped, sin)

"""Rotate pairs of channels, as in rotary position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

#: cosine and signed sine of the angle of every channel, [..., T, D] each. The signed sine of the first channel of a pair is
#: -sin, and the signed sine of the second channel is sin
Waves = tuple[Tensor, Tensor]


def every_channel(sin: Tensor, cos: Tensor, layout: str, width: int) -> Waves:
    """Expand the sines and cosines of pairs to all channels: [..., T, pairs] -> [..., T, D]. Channels without a pair get angle 0.

    layout: with "halves", channels i and i + pairs are one pair. With "interleaved", channels 2i and 2i + 1 are one pair.
    """
    rest = width - 2 * sin.size(-1)
    if layout == "halves":
        waves = torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
    else:
        waves = torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2)
    pad = torch.nn.functional.pad
    return waves if rest == 0 else (pad(waves[0], (0, rest), value=1.0), pad(waves[1], (0, rest)))


def rotate(x: Tensor, waves: Waves, pairs: int, layout: str) -> Tensor:
    """Rotate the first `pairs` pairs of channels, [..., T, D] -> same.

    `waves` contains the cosine and the signed sine of every channel, in float32 or wider. The signed sine is -sin at the first
    channel of a pair, and sin at the second channel. `waves` has no gradient.
    """
    rotation = _Rotation.apply if torch.is_grad_enabled() else rotated
    return rotation(x, *waves, pairs, layout)


class _Rotation(torch.autograd.Function):
    """A rotation that stores only the cosines and signed sines (`Waves`) for the backward pass.

    The backward pass rotates the gradient by the opposite angles.
    """

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor, pairs: int, layout: str, direction: int = 1) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.form = pairs, layout, direction
        return rotated(x, cos, sin, pairs, layout, direction)

    @staticmethod
    def backward(ctx, grad: Tensor):
        pairs, layout, direction = ctx.form
        rotation = _Rotation.apply if torch.is_grad_enabled() else rotated
        return rotation(grad, *ctx.saved_tensors, pairs, layout, -direction), None, None, None, None, None


def rotated(x: Tensor, cos: Tensor, sin: Tensor, pairs: int, layout: str, direction: int = 1) -> Tensor:
    """Return x_c cos_c + x_p sin_c for every channel c, where p is the other channel of the pair, and sin_c is the signed sine.

    The sum is computed in the precision of the waves or wider, and rounded to the precision of x. With direction -1, rotate by
    the opposite angles.
    """
    turned, rest = x.split([2 * pairs, x.size(-1) - 2 * pairs], -1) if 2 * pairs < x.size(-1) else (x, None)
    if layout == "halves":
        first, second = turned.chunk(2, -1)
        swapped = torch.cat([second, first] if rest is None else [second, first, rest], -1)
    else:
        swapped = turned.unflatten(-1, (pairs, 2)).flip(-1).flatten(-2)
        swapped = swapped if rest is None else torch.cat([swapped, rest], -1)
    if torch.compiler.is_compiling():  # torch.compile does not support out= for tensors that are not contiguous
        return torch.addcmul(x * cos, swapped, sin, value=direction).to(x.dtype)
    return torch.addcmul(x * cos, swapped, sin, value=direction, out=torch.empty_like(x))

"""Pairs of channels turned by angles."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, sin: Tensor, cos: Tensor, layout: str) -> Tensor:
    """Turns the first channels of [..., T, D] by angles whose sines are [..., T, pairs]; products are at least float32.

    layout "halves": pairs (i, i + pairs); "interleaved": pairs (2i, 2i + 1).
    """
    turned, rest = x.split([2 * sin.size(-1), x.size(-1) - 2 * sin.size(-1)], -1)
    if layout == "halves":
        a, b = turned.chunk(2, -1)
        parts = [a * cos - b * sin, b * cos + a * sin]
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        parts = [torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)]
    return torch.cat([part.to(x.dtype) for part in parts] + [rest], -1)

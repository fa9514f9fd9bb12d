"""Attention, norms, feed-forward networks and layers of complex hidden states.

A complex hidden state is a real tensor. Its last axis has twice the width: all real parts, then all imaginary parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ....attention.mask import AttentionMask
from ....attention.multihead import Attention
from ....attention.site_positions import SitePositions
from ....core import AttentionContext
from ....ops.precision import at_least_float32
from ..layers.transformer import DecoderLayer, EncoderLayer


class ComplexAttention(Attention):
    """Compute attention of complex hidden states. Scores are the moduli of complex products. Attention weights are real.

    Equation: A_ts = |sum_c q_tc k_sc| / sqrt(2 d_h), with complex q and k, and the sum over channels c. With `conjugate`, k is
        conjugated.
    Shapes: query [B, T, 2C], key [B, S, 2C'] -> output [B, T, 2C] and weights [B, H, T, S].
    Source: Wang et al. (2020), whose equation 14 conjugates k, and the translation model of iclr-complex-order/complex-order,
        which does not conjugate k.
    Cost: two products of queries and keys, each of twice the width, instead of one product. All scores are stored.
    """

    conjugate = False

    def logits(self, positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        re, im = q.chunk(2, -1)  # [B, H, T, 2D] -> [B, H, T, D] twice
        ways = ([re, im], [-im, re]) if self.conjugate else ([re, -im], [im, re])
        parts = [at_least_float32(torch.cat(way, -1) @ k.transpose(-1, -2)) for way in ways]
        # + 1e-12, because the square root has no gradient at zero
        scores = (parts[0].square() + parts[1].square() + 1e-12).sqrt() * ctx.scale
        return scores if bias is None else scores + bias

    def fused(
        self, positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask
    ) -> tuple[Tensor, None]:
        """Compute attention without a fused kernel, because torch has none for complex states."""
        return self.explicit(positions, ctx, q, k, v, mask)[0], None

    @staticmethod
    def _projected(projection: Callable[[Tensor], Tensor] | None, x: Tensor) -> Tensor:
        return Attention._projected(projection, x.unflatten(-1, (2, -1)))  # [B, T, 2C] -> [B, T, 2, C]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).movedim(-2, -4).flatten(-2)  # [B, T, 2, C] -> [B, H, T, 2D]

    def _merged(self, out: Tensor) -> Tensor:
        out = out.unflatten(-1, (2, -1)).movedim(1, -2).flatten(-2)  # [B, H, T, 2D] -> [B, T, 2, C]
        return self.out_proj(out).flatten(-2)  # [B, T, 2, C] -> [B, T, 2C]


class ComplexNorm(nn.LayerNorm):
    """Apply the same layer norm to the real parts and to the imaginary parts, separately: [..., 2C] -> [..., 2C]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(-1, (2, -1))).flatten(-2)  # [..., 2C] -> [..., 2, C] -> [..., 2C]


class ComplexLinear(nn.Module):
    """Apply a linear map with complex weights to complex numbers: [..., 2C] -> [..., 2C']."""

    def __init__(self, in_features: int, out_features: int, kernel: int, causal: bool):
        super().__init__()
        self.real, self.imaginary = nn.Linear(in_features, out_features), nn.Linear(in_features, out_features)

    def forward(self, x: Tensor, ctx: AttentionContext, name: str) -> Tensor:
        re, im = x.chunk(2, -1)
        return torch.cat([self.real(re) - self.imaginary(im), self.real(im) + self.imaginary(re)], -1)


class ComplexEncoderLayer(EncoderLayer):
    """Self-attention and feed-forward network: [B, S, 2C] -> [B, S, 2C]."""

    attention, norm, linear = ComplexAttention, ComplexNorm, ComplexLinear

    def __init__(self, cfg: Any, *args: Any):
        super().__init__(cfg, *args)
        self.self_attn.conjugate = bool(getattr(cfg, "conjugate_scores", False))


class ComplexDecoderLayer(DecoderLayer):
    """Self-attention, cross-attention and feed-forward network: [B, T, 2C] -> [B, T, 2C]."""

    attention, norm, linear = ComplexAttention, ComplexNorm, ComplexLinear

    def __init__(self, cfg: Any, *args: Any):
        super().__init__(cfg, *args)
        self.self_attn.conjugate = self.encoder_attn.conjugate = bool(getattr(cfg, "conjugate_scores", False))

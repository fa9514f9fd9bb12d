"""Queries and keys rotated by their position."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, Positions, option
from ...ops.sinusoids import SinusoidTable


class Rope(PositionMethod):
    """Rotates pairs of channels of queries and keys by angles that grow with the position.

    Equation: A_ts = (R_t q_t) . (R_s k_s) / sqrt(d_h), R_t rotates pair i by t base^(-2i/d_r); Su et al. (2021), equation 15.
    Shapes: rotate_query [B, H, T, D] -> same, rotate_key [B, H, S, D] -> same.
    Source: Su et al. (2021); layout halves as GPT-NeoX, interleaved as RoFormer.
    Deviations: cross-attention is ours (queries by target position, keys by source position); layouts differ by a fixed
        permutation of channels.
    Cost: no parameters; keys are rotated once, also while decoding.
    """

    @dataclass(frozen=True)
    class Options(Options):
        layout: Literal["halves", "interleaved"] = option(
            "halves", "pairs (i, i + d_r/2) as GPT-NeoX, or (2i, 2i + 1) as RoFormer"
        )
        fraction: float = option(1.0, "part of each head's channels that is rotated", minimum=0.0, maximum=1.0)
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="rope",
        title="Rotary position embedding",
        citation="""@article{su-etal-2021-roformer,
  title = {RoFormer: Enhanced Transformer with Rotary Position Embedding},
  author = {Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng},
  journal = {arXiv:2104.09864}, year = {2021}}""",
        equation="A_ts = (R_t q_t) . (R_s k_s) / sqrt(d_h), R_t rotates pair i by t base^(-2i/d_r)",
        survey="4.2",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        survey_parameters="0",
        deviations=("cross-attention is our extension; the authors rotate in self-attention only",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.pairs = int(options.fraction * dims.head_dim) // 2
        if self.pairs == 0:
            raise PositionError(f"rope: fraction={options.fraction} of {dims.head_dim} channels leaves no pair to rotate")
        rows = max(dims.max_positions, dims.max_key_positions)
        self.table = SinusoidTable(rows, 2 * self.pairs, "halves", "paper", options.base)

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self.rotate(q, at)

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self.rotate(k, at)

    def rotate(self, x: Tensor, at: Positions) -> Tensor:
        """Rotates the first channels of [B, H, T, D]; angles and products are at least float32."""
        sin, cos = self.table(at).unsqueeze(1).chunk(2, -1)  # [B or 1, 1, T, pairs] each
        turned, rest = x[..., : 2 * self.pairs], x[..., 2 * self.pairs :]
        if self.options.layout == "halves":
            a, b = turned.chunk(2, -1)
            parts = [a * cos - b * sin, b * cos + a * sin]
        else:
            a, b = turned[..., 0::2], turned[..., 1::2]
            parts = [torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)]
        return torch.cat([part.to(x.dtype) for part in parts] + [rest], -1)

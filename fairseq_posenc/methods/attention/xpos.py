"""Rotations with sizes that fall with the distance to earlier keys."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, Positions, option
from ...ops.precision import widen
from ...ops.rotation import Waves, every_channel, once, rotate
from ...ops.sinusoids import SinusoidTable


class XPos(PositionMethod):
    """Rotary positions whose pairs fade with the distance, the slow ones least.

    Equation: A_ts = sum_i zeta_i^((t-s)/512) (R_t q_t)_i . (R_s k_s)_i / sqrt(d_h), zeta_i = (2i + 0.4 d_h) / (1.4 d_h);
        Sun et al. (2023).
    Shapes: rotate_query [B, H, T, D] -> same, rotate_key [B, H, S, D] -> same.
    Source: Sun et al. (2023); torchscale; x-transformers.
    Deviations: the powers count from position 0, not from the middle of the sentence, so that encoded keys can be kept; encoders,
        where powers of later keys would grow, have rope.
    Cost: no parameters; keys are encoded once, also while decoding.
    """

    @dataclass(frozen=True)
    class Options(Options):
        layout: Literal["interleaved", "halves"] = option("interleaved", "pairs (2i, 2i + 1), or (i, i + d_h/2)")
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)
        scale_base: float = option(512.0, "distance at which a pair has fallen to zeta_i", minimum=1.0)

    card = MethodCard(
        name="xpos",
        title="xPos",
        citation="""@inproceedings{sun-etal-2023-length,
  title = {A Length-Extrapolatable Transformer},
  author = {Sun, Yutao and Dong, Li and Patra, Barun and Ma, Shuming and Huang, Shaohan and Benhaim, Alon and
            Chaudhary, Vishrav and Song, Xia and Wei, Furu},
  booktitle = {ACL}, year = {2023}}""",
        equation="A_ts = sum_i zeta_i^((t-s)/512) (R_t q_t)_i . (R_s k_s)_i / sqrt(d_h)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="peer",
        sites=("decoder",),
        deviations=("powers count from position 0, which changes nothing but their size", "posenc_xpos has rope in the encoder"),
        stacks={"encoder": "rope"},
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if dims.head_dim % 2:
            raise PositionError(f"xpos: heads of {dims.head_dim} channels cannot be rotated in pairs; choose an even width")
        self.table = SinusoidTable(dims.max_distance + 1, dims.head_dim, "halves", "paper", options.base)

    def draw(self, ctx: AttentionContext) -> dict:
        """Nothing yet: the first layer that asks for waves leaves them here for the others."""
        return {}

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(q, at, 1, ctx)

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._encode(k, at, -1, ctx)

    def _encode(self, x: Tensor, at: Positions, sign: int, ctx: AttentionContext) -> Tensor:
        waves = once(ctx, self, (id(at), sign), lambda: self._waves(x, at, sign))
        return rotate(x, waves, self.dims.head_dim // 2, self.options.layout)

    def _waves(self, x: Tensor, at: Positions, sign: int) -> Waves:
        """[B or 1, 1, T, D] each."""
        width = self.dims.head_dim
        zeta = (torch.arange(0, width, 2, dtype=torch.float64, device=x.device) + 0.4 * width) / (1.4 * width)
        size = (zeta ** (sign / self.options.scale_base * at.ids.double().unsqueeze(-1))).unsqueeze(1)  # [B or 1, 1, T, D/2]
        sin, cos = ((wave.unsqueeze(1) * size).to(widen(x).dtype) for wave in self.table(at).chunk(2, -1))
        return every_channel(sin, cos, self.options.layout, width)

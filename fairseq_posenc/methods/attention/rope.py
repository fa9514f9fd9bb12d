"""Queries and keys rotated by their position."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...contract import AttentionContext, Dims, MethodCard, Options, PositionError, PositionMethod, Positions, option
from ...ops.rotation import Waves, every_channel, once, rotate
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
        self.width = rotated_width(options, dims)
        self.table = SinusoidTable(dims.max_distance + 1, self.width, "halves", "paper", options.base)

    def draw(self, ctx: AttentionContext) -> dict:
        """Nothing yet: the first layer that asks for waves leaves them here for the others."""
        return {}

    def rotate_query(self, q: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._rotate(q, at, ctx)

    def rotate_key(self, k: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self._rotate(k, at, ctx)

    def _rotate(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return rotate(x, once(ctx, self, id(at), lambda: self._waves(x, at)), self.width // 2, self.options.layout)

    def _waves(self, x: Tensor, at: Positions) -> Waves:
        """[B or 1, 1, T, D] each."""
        return every_channel(*self.table(at).unsqueeze(1).chunk(2, -1), self.options.layout, x.size(-1))


def rotated_width(options, dims: Dims) -> int:
    """The number of channels that are rotated, an even one; raises PositionError where there are none."""
    width = int(options.fraction * dims.head_dim) // 2 * 2
    if width == 0:
        raise PositionError(f"fraction={options.fraction} of {dims.head_dim} channels leaves no pair to rotate")
    return width

"""Queries and keys rotated by their position."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    option,
)
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.sinusoids import SinusoidTable


class Rope(PositionMethod):
    """Rotate pairs of channels of queries and keys by angles that grow with the position.

    Equation: A_ts = (R_t q_t) . (R_s k_s) / sqrt(d_h), R_t rotates pair i by t base^(-2i/d_r); Su et al. (2021), equation 15.
    Shapes: rotate [B, H, T, D] -> same.
    Source: Su et al. (2021); layout halves as GPT-NeoX, interleaved as RoFormer.
    Deviations: the default layout is that of GPT-NeoX, which differs from the authors' by a fixed permutation of channels;
        cross-attention is our extension (queries by target position, keys by source position).
    Cost: no parameters; keys are rotated once, also while decoding.
    Errors: PositionError where the fraction leaves no pair of channels.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        layout: Literal["halves", "interleaved"] = option(
            "halves", "channels of a pair: (i, i + d_r/2) as in GPT-NeoX, or (2i, 2i + 1) as in RoFormer"
        )
        fraction: float = option(1.0, "part of each head's channels that is rotated", minimum=0.0, maximum=1.0)
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="rope",
        title="Rotary position embedding",
        citations=("su-etal-2021-roformer",),
        survey="4.2",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        survey_parameters="0",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.width = rotated_width(options, dims)
        self.table = SinusoidTable(dims.max_distance + 1, self.width, "halves", "paper", options.base)

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return rotate(x, ctx.once((self, at), lambda: self._waves(x, at)), self.width // 2, self.options.layout)

    def _waves(self, x: Tensor, at: Positions) -> Waves:
        """[B or 1, 1, T, D] each."""
        return every_channel(*self.table(at).unsqueeze(1).chunk(2, -1), self.options.layout, x.size(-1))


def rotated_width(options, dims: Dims) -> int:
    """The number of channels that are rotated, an even one; raises PositionError where there are none."""
    width = int(options.fraction * dims.head_dim) // 2 * 2
    if width == 0:
        raise PositionError(f"fraction={options.fraction} of {dims.head_dim} channels leaves no pair to rotate")
    return width

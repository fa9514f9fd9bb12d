"""Rotations with magnitudes that decrease with the distance to earlier keys."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
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
from ...ops import devices
from ...ops.constants import Constants
from ...ops.precision import at_least_float32
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.sinusoids import SinusoidTable

#: zeta_0. It does not depend on the width of a head
_ZETA = 0.4 / 1.4
#: maximum logarithm of a magnitude. float32 overflows at 88, so that a product with a query or a key does not overflow
_LARGEST = 80.0


class XPos(PositionMethod):
    r"""Rotate pairs of channels as rope does. The product of a query pair and a key pair decreases with the distance.
    Products of pairs with higher frequencies decrease faster.

    Equation: $A_{ts} = \sum_i \zeta_i^{(t-s)/512} (R_t q_t)_i \cdot (R_s k_s)_i / \sqrt{d_h}$, $\zeta_i = (2i + 0.4 d_h) / (1.4
        d_h)$. Sun et al. (2023).
    Shapes: rotate [B, H, T, D] -> same.
    Source: Sun et al. (2023). Code: torchscale. Code: x-transformers.
    Deviations:
        * The exponent of the paper is t - s, and the paper leaves the constant 0.4 open. 512 and 0.4 are from the authors' code.
        * The paper's evaluation on long texts also restricts attention to blocks. This is left out.
        * A query at position t is multiplied by zeta^((t - m) / scale_base). A key at position s is multiplied by
          zeta^((m - s) / scale_base). The fixed position m is the smaller of max_positions/2 and 4 scale_base. In the authors'
          code, m is the middle of the current sentence.
        * Because m is fixed, the keys in the cache do not change in incremental decoding. The choice of m changes the size of
          queries and keys, but not the scores.
        * float16 represents the sizes of queries and keys up to about 7.8 scale_base positions beyond m. With scale_base=512,
          the limit is 4,000 positions. float32 and bfloat16 represent the sizes up to about 64 scale_base positions beyond m.
        * posenc_xpos has rope in the encoder. With xpos, the products with later keys would increase with the distance.
    Cost: no parameters. Each key is rotated and multiplied by its magnitudes once, also in incremental decoding.
    Raises: PositionError for heads of odd width. PositionError for a sentence in which float32 overflows. If positions differ
        between sentences, an overflow is not detected.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        layout: Literal["interleaved", "halves"] = option("interleaved", "channels of a pair: (2i, 2i + 1) or (i, i + d_h/2)")
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)
        scale_base: float = option(512.0, "distance at which the product of pair i has the factor zeta_i", minimum=1.0)

    card = MethodCard(
        name="xpos",
        title="xPos",
        citations=("sun-etal-2023-length",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        default_specs={"encoder": "rope"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if dims.head_dim % 2:
            raise PositionError(
                f"xpos: heads have {dims.head_dim} channels. Expected an even number. Change the number of heads."
            )
        self.rates = Constants(self._zeta().log() / options.scale_base)
        #: position at which all magnitudes are 1. Exponents on both sides are small, so that float16 does not overflow
        self.middle = min(dims.max_positions // 2, int(4 * options.scale_base))
        #: the magnitude at this position is (1 / zeta_0)^((longest - m) / scale_base), which is at most exp(_LARGEST)
        self.longest = self.middle + int(_LARGEST / -math.log(_ZETA) * options.scale_base)
        self.table = SinusoidTable(dims.max_distance + 1, dims.head_dim, "halves", "paper", options.base)

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        if at.start is not None and at.last > self.longest:  # other positions are not read from the device
            raise PositionError(
                f"xpos: a sentence has {at.last + 1} positions, but with scale_base={self.options.scale_base}, float32 overflows "
                f"after {self.longest + 1} positions. Expected shorter sentences. Increase scale_base."
            )
        sign = 1 if which == "query" else -1
        waves = ctx.once((self, at, sign), lambda: self._waves(x, at, sign))
        return rotate(x, waves, self.dims.head_dim // 2, self.options.layout)

    def _waves(self, x: Tensor, at: Positions, sign: int) -> Waves:
        """Return cosines and signed sines (see `Waves`), multiplied by the magnitudes of xPos: [B or 1, 1, T, D] each."""
        if devices.on_cpu(x):
            size = self._zeta() ** (sign / self.options.scale_base * (at.ids.double().unsqueeze(-1) - self.middle))
        else:  # computed in float32, which is exact enough because the exponents are small
            size = ((at.ids - self.middle).float().unsqueeze(-1) * (sign * self.rates.values)).exp()
        sin, cos = ((wave * size).unsqueeze(1).to(at_least_float32(x).dtype) for wave in self.table(at).chunk(2, -1))
        return every_channel(sin, cos, self.options.layout, self.dims.head_dim)

    def _zeta(self) -> Tensor:
        """Return zeta [D/2] in float64."""
        width = self.dims.head_dim
        return (torch.arange(0, width, 2, dtype=torch.float64) + 0.4 * width) / (1.4 * width)

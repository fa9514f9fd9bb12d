"""Queries and keys in polar coordinates. Tokens determine the magnitudes. Positions determine the angles."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

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
from ...ops.constants import Constants
from ...ops.kernels.polar import PolarCoordinates
from ...ops.sinusoids import Frequencies, frequencies


class Pope(PositionMethod):
    r"""Represent each channel of queries and keys by a magnitude and an angle. The token determines the magnitude. The
    position determines the angle.

    Equation: $A_{ts} = \sum_i \operatorname{softplus}(q_{t,i}) \operatorname{softplus}(k_{s,i}) \cos((t-s) \theta_i - \delta_i)
        / \sqrt{d_h}$, $\theta_i = \mathrm{base}^{-i/d_r}$, $\delta_i$ a learned phase. Gopalakrishnan et al. (2025). $d_r$ is
        the number of channels of a head that have an angle. The sum has only these channels. Each of the other channels adds
        the product $q_{t,i} k_{s,i} / \sqrt{d_h}$ to the score.
    Shapes: rotate [B, H, T, D] -> [B, H, T, 2 D], all cosines before all sines. If the option fraction is
        less than 1, the width is D plus the number of channels with an angle.
    Source: Gopalakrishnan et al. (2025). Code: x-transformers. Code: lucidrains/PoPE-pytorch.
    Deviations:
        * Phases are not limited to [-2 pi, 0]. The paper and public code limit the phases. Cosines are periodic, so a limit does
          not change the set of possible cosines. A limit removes the gradient of phases above 0.
        * Encoder and cross-attention are extensions of this project. With all phases at 0, scores do not distinguish left from
          right.
        * posenc_pope therefore starts the phases of the encoder at random (start=uniform). For the cross-attention, too, use
          cross=pope:start=uniform.
        * By default, layers share the phases, as in x-transformers. A figure of the paper has different phases in each layer
          (share=none).
    Cost: h d_h parameters per stack if layers share the phases. Queries, keys and the key cache are twice
        as wide.
    Raises: PositionError if the option fraction selects no channel.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)
        fraction: float = option(
            1.0, "fraction of the channels of a head that have an angle (other channels are unchanged)", minimum=0.0, maximum=1.0
        )
        share: Literal["layers", "none", "heads", "all"] = option(
            "layers", "sharing of the phases: across heads, across layers, both (all), or none"
        )
        start: Literal["zero", "uniform"] = option("zero", "initial phases: 0, or uniform between -2 pi and 0")

    card = MethodCard(
        name="pope",
        title="Polar coordinate position embedding (PoPE)",
        citations=("gopalakrishnan-etal-2025-decoupling",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="tables * (fraction * d_h // 1)",
        default_specs={"encoder": "pope:start=uniform"},
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.width = int(options.fraction * dims.head_dim)
        if self.width == 0:
            raise PositionError(
                f"pope: fraction={options.fraction} of {dims.head_dim} channels selects no channel. "
                "Expected at least one. Increase fraction."
            )
        self.phase = self.parameter_table(self.width, share=options.share)
        if options.start == "uniform":
            nn.init.uniform_(self.phase, -2 * math.pi, 0.0)
        self.theta = Frequencies(frequencies(self.width, 2 * self.width, "paper", options.base))  # base^(-i/width)
        self.table = Constants(self._turned(torch.arange(dims.max_distance + 1)).flatten())

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        angles, waves = ctx.once((self, at), lambda: self._with_waves(self._angles(at)))  # [B or 1, 1, T, width]
        if which == "key":
            phase = self.of_layer(self.phase, ctx, float32=True).unsqueeze(-2)  # [H or 1, width] -> [H or 1, 1, width]
            angles, waves = self._with_waves(angles + phase)
        if self.width == x.size(-1):
            return PolarCoordinates.apply(x, angles, waves)
        return torch.cat([PolarCoordinates.apply(x[..., : self.width], angles, waves), x[..., self.width :]], -1)

    @staticmethod
    def _with_waves(angles: Tensor) -> tuple[Tensor, Tensor]:
        """Return the angles [..., T, width], and the cosines and sines of the angles [..., T, 2, width].

        The cosines and sines have no gradient.
        """
        fixed = angles.detach()
        return angles, torch.stack([fixed.cos(), fixed.sin()], -2)

    def _angles(self, at: Positions) -> Tensor:
        """Return the angles of positions, [B or 1, 1, T, width].

        If all sentences have the positions start, start + 1, ..., the angles are read from a table. Otherwise,
        and for positions beyond the table, the angles are computed.
        """
        end = None if at.start is None else at.start + at.ids.size(1)
        rows = self.table.values.view(-1, self.width)
        found = self._turned(at.ids) if end is None or end > len(rows) else rows[at.start : end].unsqueeze(0)
        return found.unsqueeze(1)

    def _turned(self, ids: Tensor) -> Tensor:
        """Return the angle of each position in float32. Full turns are removed, because large angles are inexact in float32."""
        return self.theta(ids).remainder(2 * math.pi).float()

"""Queries and keys in polar coordinates: magnitudes from words, angles from positions."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
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
from ...ops.precision import at_least_float32
from ...ops.sinusoids import frequencies


class Pope(PositionMethod):
    """Represent each channel of queries and keys by magnitude and angle: the word sets the magnitude, the position the angle.

    Equation: A_ts = sum_i softplus(q_t,i) softplus(k_s,i) cos((t-s) theta_i - delta_i) / sqrt(d_h), theta_i = base^(-i/d_h),
        delta_i a learned phase; Gopalakrishnan et al. (2025).
    Shapes: rotate [B, H, T, D] -> [B, H, T, 2 D], all cosines before all sines; with fraction, D channels and the rotated ones.
    Source: summaries of Gopalakrishnan et al. (2025), whose text was not read; x-transformers; lucidrains/PoPE-pytorch.
    Deviations:
        * Phases are not limited to [-2 pi, 0], as in public code: the cosine is periodic, and at 0 a limit ends the gradient.
        * Encoder and cross-attention are this project's extension. With all phases at 0, scores do not distinguish left from
          right.
        * posenc_pope therefore starts the phases of the encoder at random (start=uniform).
        * The paper leaves open whether layers share the phases; x-transformers shares them.
    Cost: h d_h parameters per stack where layers share; queries, keys and their cache are twice as wide.
    Errors: PositionError if the fraction leaves no channel.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)
        fraction: float = option(
            1.0, "part of each head's channels that get an angle; the other channels stay as they are", minimum=0.0, maximum=1.0
        )
        share: Literal["layers", "none", "heads", "all"] = option("layers", "share phases across heads, layers or both")
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

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        angles = ctx.once((self, at), lambda: self._angles(at))  # [B or 1, 1, T, width]
        if which == "key":
            phase = at_least_float32(self.of_layer(self.phase, ctx)).unsqueeze(-2)  # [H or 1, width] -> [H or 1, 1, width]
            angles = angles.to(phase.dtype) + phase
        size, plain = x[..., : self.width], x[..., self.width :]
        size = F.softplus(at_least_float32(size))
        return torch.cat([(size * angles.cos()).to(x.dtype), (size * angles.sin()).to(x.dtype), plain], -1)

    def _angles(self, at: Positions) -> Tensor:
        """In float64, reduced to one turn: in float32, an angle of thousands of positions would be inexact."""
        theta = frequencies(self.width, 2 * self.width, "paper", self.options.base, at.ids.device)  # base^(-i/width)
        return (at.ids.double()[:, None, :, None] * theta).remainder(2 * math.pi).float()

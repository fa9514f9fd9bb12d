"""Relative vectors whose channels are wavelets of the distance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops import devices
from ...ops.relative import query_products, same_in_all_layers


class Wavelet(PositionMethod):
    r"""Add the product of the query with a fixed distance vector, whose channels are wavelets of several scales and shifts.

    Equation: $A_{ts} = q_t \cdot (k_s + p[t-s]) / \sqrt{d_h}$, $p[x]_i = \psi((x - b_i) / a_i)$, $\psi(z) = (1 - z^2) \exp(-z^2 /
        2)$. Oka et al. (2025), equations 10 to 14.
    Shapes: content_scores -> [B, H, T, S].
    Source: Oka, Hasegawa, Nishida and Saito (2025). No code was found.
    Deviations:
        * By default, there are 8 scales 2^0, ..., 2^7 and d_h/8 shifts 0, ..., d_h/8 - 1, as in the paper for d_h = 128. Heads
          of fewer than 16 channels have d_h/2 scales, so that they have two shifts.
        * Channel i has the scale 2^(i mod 8) and the shift i // 8. The paper does not state the order of the channels.
        * The paper's largest model has the scales 2^2, ..., 2^9. The scales of this project begin with 2^0.
        * No distance is clipped. The wavelets of long distances are 0, so all long distances have the same score.
        * The use of this method in the encoder is an extension of this project. $\psi$ is symmetric. Only channels with a shift
          above 0 therefore distinguish directions.
    Cost: no parameters. Each layer computes the products of all queries with the vectors of all distances. The spec
        shaw:values=false computes products of the same form, but only with the vectors of clipped distances.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        scales: int | None = option(
            None,
            "number of scales 1, 2, 4, ... of the wavelets (none: 8, or half of the channels of a head)",
            minimum=1,
            maximum=30,
        )

    card = MethodCard(
        name="wavelet",
        title="Wavelet positions",
        citations=("oka-etal-2025-wavelet",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.scales = options.scales or max(1, min(8, dims.head_dim // 2))

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        wavelets = same_in_all_layers(self, lambda distance: self._vectors(-distance).unsqueeze(0), ctx)
        return query_products(q, ctx, lambda distance: wavelets(distance) * ctx.scale)

    def _vectors(self, x: Tensor) -> Tensor:
        """Return the wavelets of distances t - s: [W] -> [W, D] in float32, computed in float64 on a CPU."""
        channels = torch.arange(self.dims.head_dim, device=x.device)
        exact = torch.float64 if devices.on_cpu(x) else torch.float32
        scale, shift = 2.0 ** (channels % self.scales).to(exact), channels // self.scales
        square = ((x.unsqueeze(-1) - shift) / scale) ** 2
        return ((1 - square) * (-square / 2).exp()).float()

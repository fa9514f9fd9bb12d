"""A fixed penalty from the products of sinusoids."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.sinusoids import Frequencies


class Sandwich(PositionMethod):
    r"""Add a term that decreases with the distance: the product of the sinusoids of two positions, divided by a number per head.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + (\sum_j \cos((s-t) / 10000^{2j/D}) - D/2) / (8 i/h)$, $j = 1$ to $D/2$, or
        $0$ to $D/2 - 1$ with `first=0`, for head $i = 1$ to $h$. Chi et al. (2023).
    Shapes: bias -> [1, H, T, S].
    Source: Chi, Fan, Rudnicky and Ramadge (2023), whose text and code were not read. Code: NVIDIA/NeMo.
    Deviations:
        * The method is reconstructed from NeMo.
        * The width of 128 for the sinusoids is unverified. In NeMo, the sinusoids have the width of a head.
        * Public implementations differ in the first j. Dot products of the sinusoids of Vaswani et al. have first=0.
        * The use in the encoder and in cross-attention is an extension of this project. At
          these sites, keys on the left and on the right at the same distance have the same term.
    Cost: no parameters. Each forward pass computes T + S - 1 sums of cosines, one per distance.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        width: int = option(128, "width D of the sinusoids", minimum=2, maximum=65536)
        first: Literal[1, 0] = option(1, "first index j of the sum (with 0, one of the cosines has frequency 1)")

    card = MethodCard(
        name="sandwich",
        title="Sandwich",
        citations=("chi-etal-2023-dissecting",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        directional=False,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        steps = torch.arange(options.width // 2, dtype=torch.float64) + options.first
        self.frequencies = Frequencies(torch.exp(-2 * math.log(10000.0) / options.width * steps))

    def bias(self, ctx: AttentionContext) -> Tensor:
        half = self.options.width // 2

        def values(delta: Tensor) -> Tensor:
            product = self.frequencies(delta).cos().sum(-1)
            return torch.tensordot(1 / self._divisors(product), product - half, 0).float()

        return by_distance(ctx.queries, ctx.keys, values)

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return the sinusoids of queries, divided by a number per head [B or 1, H, T, D], and of keys [B or 1, 1, S, D].

        The product is the equation without D/2, because cos(a - b) = cos a cos b + sin a sin b.
        """
        queries, keys = (self._sinusoids(at.ids).unsqueeze(1) for at in (ctx.queries, ctx.keys))  # [B or 1, 1, T or S, D]
        return queries / self._divisors(queries)[:, None, None], keys

    def _sinusoids(self, positions: Tensor) -> Tensor:
        angles = self.frequencies(positions)
        return torch.cat([angles.cos(), angles.sin()], -1)  # [B or 1, T, D/2] twice -> [B or 1, T, D]

    def _divisors(self, like: Tensor) -> Tensor:
        """Return 8 i / h for each head i = 1 to h: [H], with the type and the device of `like`."""
        heads = self.dims.num_heads
        return torch.arange(1, heads + 1, dtype=like.dtype, device=like.device) * (8 / heads)

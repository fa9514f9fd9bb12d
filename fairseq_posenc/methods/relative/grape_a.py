"""ALiBi with slopes that are multiplied by gates. The gates are computed from keys or queries."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.constants import Constants
from ...ops.distances import distances
from ...ops.precision import at_least_float32
from ..bias.alibi import slopes

#: argument at which softplus is 1
_ONE = math.log(math.e - 1)


class GatedAlibi(PositionMethod):
    r"""Add an ALiBi penalty whose slope depends on the key, the query or both.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - (t - s) m_h w_h g_{ts}$. $m_h$ are the slopes of `alibi`, and $w_h$ is the
        softplus of a learned number. `gate=key`: $g_{ts} = \operatorname{softplus}(u \cdot k_s / \sqrt{d_h})$. `gate=query`:
        $g_{ts} = \operatorname{softplus}(v \cdot q_t / \sqrt{d_h})$. `gate=both`: $g_{ts}$ is the sum of these two
        gates. In each head, $u$ and $v$ are learned vectors of norm 1. Additive GRAPE, Zhang et al. (2026).
    Shapes: content_scores -> [B, H, T, S].
    Source: Zhang et al. (2026). Code: model-architectures/GRAPE, README and model.
    Deviations:
        * The equation of the paper is gate=both. The tables of the paper also contain gate=key, the default, and gate=query.
        * Queries and keys have no normalisation. The authors pass them through a learned RMSNorm first.
        * The encoder is an extension of this project: the distance is |s - t|, and u and v differ between the two directions.
    Cost: L (h + d) parameters per stack, L (h + 2 d) with gate=both. The encoder has u and v once per
        direction. Gates are [B, H, S] or [B, H, T].
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        gate: Literal["key", "query", "both"] = option("key", "source of the slope of a pair: its key, its query or both")

    card = MethodCard(
        name="grape_a",
        title="Gated ALiBi (additive GRAPE)",
        citations=("zhang-etal-2026-group",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="L * (h + (2 if gate == 'both' else 1) * (1 if causal else 2) * d)",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.slopes = Constants(slopes(dims.num_heads))
        self.rate = self.parameter_table(share="none")
        nn.init.constant_(self.rate, _ONE)
        sides = 1 if dims.causal else 2  # causal: keys to the left. Otherwise: keys to the left, and keys to the right
        self.of_key, self.of_query = (
            self.parameter_table(sides, dims.head_dim, share="none") if options.gate in (side, "both") else None
            for side in ("key", "query")
        )
        for vectors in (self.of_key, self.of_query):
            if vectors is not None:
                nn.init.normal_(vectors, std=dims.head_dim**-0.5)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        slope = self.slopes.values * F.softplus(self.of_layer(self.rate, ctx, float32=True))  # [H]
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        total = None
        for vectors, x, axis in ((self.of_key, k, -2), (self.of_query, q, -1)):
            if vectors is not None:
                gates = slope[:, None, None] * self._gates(vectors, x, ctx)  # [B, H, sides, S or T]
                left, right = (gates[:, :, side].unsqueeze(axis) for side in (0, -1))  # [B, H, 1, S] or [B, H, T, 1]
                gate = left if self.dims.causal else torch.where(delta <= 0, left, right)
                total = gate if total is None else total + gate
        assert total is not None
        return delta * total if self.dims.causal else -delta.abs() * total

    def _gates(self, vectors: Tensor, x: Tensor, ctx: AttentionContext) -> Tensor:
        """Return softplus(u . x / sqrt(d_h)) for each side: [B, H, N, D] -> [B, H, sides, N], in float32 or wider.

        The first side is for keys to the left of the query. If the attention is not causal, the second side is for keys to the
        right. Each side has its own vector u.
        """
        unit = F.normalize(self.of_layer(vectors, ctx, float32=True), dim=-1)  # [H, sides, D]
        return F.softplus(at_least_float32(unit @ at_least_float32(x).mT) * self.dims.head_dim**-0.5)

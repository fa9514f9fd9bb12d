"""Rectified scores, weighted by a learned sigmoid of the distance."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import by_distance


class DistanceAware(PositionMethod):
    r"""Multiply rectified scores by a learned sigmoid of the distance. Each head can thereby prefer either near keys or far
    keys.

    Equation: $A_{ts} = \operatorname{ReLU}(q_t \cdot k_s) c(|s-t|) / \sqrt{d_h}$, $c(x) = (1 + \exp(v)) / (1 + \exp(v - w x))$.
        Wu et al. (2021). Survey, equations 16 and 17.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Wu, Wu and Huang (2021), abstract. Survey.
    Deviations:
        * The method is reconstructed from the survey, because the paper could not be read.
        * The factor $1/\sqrt{d_h}$ has the same place as in a public summary of the paper. The initial values and the sharing
          between layers are unverified.
        * Every layer has its own w and v. Both start near 0, where c = 1.
        * Scores do not depend on the direction.
        * The survey counts the parameters of one layer.
        * Decoder and cross-attention are extensions of this project.
    Cost: 2 h parameters per layer, and one elementwise product with the scores.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        share: Literal["none", "heads", "layers", "all"] = option(
            "none", "sharing of the table: across heads, across layers, both (all), or none"
        )

    card = MethodCard(
        name="da",
        title="DA-Transformer",
        citations=("wu-etal-2021-da",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="2 * tables",
        survey_parameters="2 h",
        directional=False,
    )

    rescale_reads = "scores"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.weight = self.parameter_table(share=options.share)
        self.offset = self.parameter_table(share=options.share)
        for scalar in (self.weight, self.offset):
            nn.init.normal_(scalar, std=0.02)  # different initial values, so that heads differ

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        w, v = (self.of_layer(scalar, ctx, float32=True) for scalar in (self.weight, self.offset))  # [H or 1] each

        def values(delta: Tensor) -> Tensor:
            slope = torch.tensordot(w, delta.abs().to(w.dtype), 0)
            offset = v.view(-1, *[1] * delta.dim())
            # the logarithm of the ratio c(x) is computed first, so that the exponentials in the ratio do not overflow
            return torch.exp(F.softplus(offset) - F.softplus(offset - slope))

        return F.relu(scores) * by_distance(ctx.queries, ctx.keys, values)

"""Rectified scores, weighted by a learned sigmoid of the distance."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance
from ...ops.precision import widen


class DistanceAware(PositionMethod):
    """Every head learns whether it prefers near or far keys.

    Equation: A_ts = ReLU(q_t . k_s) c(|s-t|) / sqrt(d_h), c(x) = (1 + exp(v)) / (1 + exp(v - w x)); Wu et al. (2021);
        survey, equations 16 and 17.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Wu, Wu and Huang (2021), abstract; survey.
    Deviations: every layer has its own w and v, which start near 0, where c = 1; the paper's choices could not be read.
    Cost: 2 h parameters a layer; one product of the size of the scores a layer.
    """

    @dataclass(frozen=True)
    class Options(Options):
        share: Literal["none", "heads", "layers", "all"] = option("none", "who has the two scalars in common")

    card = MethodCard(
        name="da",
        title="DA-Transformer",
        citation="""@inproceedings{wu-etal-2021-da,
  title = {DA-Transformer: Distance-aware Transformer},
  author = {Wu, Chuhan and Wu, Fangzhao and Huang, Yongfeng},
  booktitle = {NAACL-HLT}, year = {2021}}""",
        equation="A_ts = ReLU(q_t . k_s) c(|s-t|) / sqrt(d_h), c(x) = (1 + exp(v)) / (1 + exp(v - w x))",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="reconstruction",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="2 h L",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2),
        survey_parameters="2 h",
        deviations=(
            "blind to direction",
            "reconstructed from the survey: where the paper scales, how it starts and what layers share is unverified",
            "the survey counts one layer",
            "decoder and cross-attention are our extension",
        ),
    )

    rescales = "scores"

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.weight = self.parameter_table(share=options.share)
        self.offset = self.parameter_table(share=options.share)
        for scalar in (self.weight, self.offset):
            nn.init.normal_(scalar, std=0.02)  # so that heads differ

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        w, v = (widen(self.of_layer(scalar, ctx)) for scalar in (self.weight, self.offset))  # [H or 1] each

        def values(delta: Tensor) -> Tensor:
            away = torch.tensordot(w, delta.abs().to(w.dtype), 0)
            start = v.view(-1, *[1] * delta.dim())
            return torch.exp(F.softplus(start) - F.softplus(start - away))  # no exponential overflows in the ratio

        return F.relu(scores) * by_distance(ctx.queries, ctx.keys, values)

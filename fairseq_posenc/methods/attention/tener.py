"""Products of queries with unprojected sinusoids of signed distances."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.relative import key_products, query_products
from ...ops.sinusoids import sinusoid


class Tener(PositionMethod):
    """Transformer-XL's terms with sinusoids as wide as a head and not projected, so that direction survives; unscaled.

    Equation: A_ts = (q_t + u) . k_s + (q_t + v) . R[t-s]; Yan et al. (2019); survey, equation 22.
    Shapes: content_scores -> [B, H, T, S].
    Source: Yan, Deng, Li and Qiu (2019); fastnlp/TENER.
    Deviations: keys are projected, as in the code (key=identity is the paper); the output projection stays; cross-attention is
        ours. Other differences of the code are options: key_term, sign, grid.
    Cost: 2 d L parameters a stack; memory O(B H T (T + S)).
    """

    @dataclass(frozen=True)
    class Options(Options):
        key: Literal["linear", "identity"] = option("linear", "projected keys as in the code, or none as in the paper")
        key_term: bool = option(False, "add k_s . R[t-s], as in the code")
        sign: Literal["paper", "code"] = option("paper", "queries meet R[t-s], or R[s-t] as in the code")
        grid: Literal["paper", "code"] = option("paper", "wavelengths of Vaswani et al. (2017), or those of tensor2tensor")
        scaled: bool = option(False, "divide all terms by sqrt(d_h)")

    card = MethodCard(
        name="tener",
        title="TENER",
        citation="""@article{yan-etal-2019-tener,
  title = {TENER: Adapting Transformer Encoder for Named Entity Recognition},
  author = {Yan, Hang and Deng, Bocao and Li, Xiaonan and Qiu, Xipeng},
  journal = {arXiv:1911.04474}, year = {2019}}""",
        equation="A_ts = (q_t + u) . k_s + (q_t + v) . R[t-s]",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="2 d L",
        count=lambda options, dims, site: 2 * dims.embed_dim * dims.num_layers,
        survey_parameters="2 d L h",
        deviations=(
            "keys are projected, as in the authors' code; the paper leaves them as they are (key=identity)",
            "the output projection stays, which the code leaves out",
            "the survey counts h times too many",
            "decoder and cross-attention are our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if options.key == "identity":
            self.projections = frozenset({"query", "value"})
        self.content_bias = nn.Parameter(torch.empty(dims.num_layers, dims.num_heads, dims.head_dim))
        self.position_bias = nn.Parameter(torch.empty(dims.num_layers, dims.num_heads, dims.head_dim))
        for bias in (self.content_bias, self.position_bias):
            nn.init.xavier_normal_(bias)

    def scale(self, head_dim: int) -> float:
        return head_dim**-0.5 if self.options.scaled else 1.0

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        u, v = (bias[ctx.layer].unsqueeze(-1).to(q.dtype) for bias in (self.content_bias, self.position_bias))  # [H, D, 1]
        turned = -1 if self.options.sign == "paper" else 1

        def waves(x: Tensor) -> Tensor:
            grid = "paper" if self.options.grid == "paper" else "fairseq"
            return sinusoid(x, self.dims.head_dim, "halves", grid).to(q.dtype).unsqueeze(0)

        scores = (k @ u).transpose(-1, -2) + query_products(q + v.transpose(-1, -2), ctx, lambda delta: waves(turned * delta))
        if self.options.key_term:
            scores = scores + key_products(k, ctx, lambda delta: waves(-delta))
        return scores * self.scale(self.dims.head_dim)

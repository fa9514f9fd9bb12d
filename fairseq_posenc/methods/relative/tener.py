"""Products of queries with sinusoids of signed distances, without projection."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.relative import Vectors, key_products, query_products, same_in_all_layers
from ...ops.sinusoids import Sinusoids


class Tener(PositionMethod):
    r"""Add Transformer-XL's terms without projecting the sinusoids. Sinusoids of signed distances distinguish left from right.

    Equation: $A_{ts} = (q_t + u) \cdot k_s + (q_t + v) \cdot R[t-s]$. Yan et al. (2019). Survey, equation 22.
    Shapes: content_scores -> [B, H, T, S].
    Source: Yan, Deng, Li and Qiu (2019). Code: fastnlp/TENER.
    Deviations:
        * Keys are projected, as in the authors' code. The paper does not project keys (key=identity).
        * The output projection stays. The paper and the authors' code leave it out.
        * The authors' code also differs from the paper in three other points. By default, this project follows the paper. For
          each point, one of the options key_term, sign and grid selects the behaviour of the authors' code.
        * The survey's number of parameters is h times too large.
        * Decoder and cross-attention are extensions of this project.
    Cost: 2 d L parameters per stack. Memory O(B H T (T + S)).
    Raises: PositionError for key=identity if keys and queries have different widths.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        key: Literal["linear", "identity"] = option(
            "linear", "projected keys as in the authors' code, or unprojected keys as in the paper"
        )
        key_term: bool = option(False, "products of keys with R[t-s], as in the authors' code")
        sign: Literal["paper", "code"] = option(
            "paper", "products of queries with R[t-s] as in the paper, or with R[s-t] as in the authors' code"
        )
        grid: Literal["paper", "code"] = option("paper", "wavelengths of Vaswani et al. (2017), or those of tensor2tensor")
        scaled: bool = option(False, "division of all terms by sqrt(d_h)")

    card = MethodCard(
        name="tener",
        title="TENER",
        citations=("yan-etal-2019-tener",),
        survey="4.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="2 * d * L",
        survey_parameters="2 d L h",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.key == "identity":
            self.projections = frozenset({"query", "value"})
            if dims.key_width != dims.embed_dim:
                raise PositionError(
                    f"tener: key=identity requires queries and keys of equal width, but queries have width {dims.embed_dim} "
                    f"and keys have width {dims.key_width}. Use key=linear or equal widths."
                )
        self.waves = Sinusoids(dims.head_dim, "halves", "paper" if options.grid == "paper" else "fairseq")
        self.content_bias = nn.Parameter(torch.empty(dims.num_layers, dims.num_heads, dims.head_dim))
        self.position_bias = nn.Parameter(torch.empty(dims.num_layers, dims.num_heads, dims.head_dim))
        for bias in (self.content_bias, self.position_bias):
            nn.init.xavier_normal_(bias)

    def scale(self, ctx: AttentionContext) -> float:
        return self.dims.head_dim**-0.5 if self.options.scaled else 1.0

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        biases = (self.of_layer(bias, ctx) for bias in (self.content_bias, self.position_bias))
        u, v = (bias.unsqueeze(-1).to(q.dtype) for bias in biases)  # [H, D, 1]
        turned = -1 if self.options.sign == "paper" else 1

        def waves(of: str, sign: int) -> Vectors:
            return same_in_all_layers((self, of), lambda delta: self.waves(sign * delta).to(q.dtype).unsqueeze(0), ctx)

        scores = (k @ u).transpose(-1, -2) + query_products(q + v.transpose(-1, -2), ctx, waves("queries", turned))
        if self.options.key_term:
            scores = scores + key_products(k, ctx, waves("keys", -1))
        return scores * ctx.scale

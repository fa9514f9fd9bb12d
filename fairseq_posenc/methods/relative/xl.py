"""Products of queries with projected sinusoids of distances, and learned biases of content and distance."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.relative import kept_while_decoding, query_products, same_in_all_layers, table_product
from ...ops.sinusoids import Sinusoids


class TransformerXL(PositionMethod):
    r"""Add products of queries with projected sinusoids of the distance. In the product with keys, one
    learned vector is added to the queries. In the product with sinusoids, another learned vector is added to the queries.

    Equation: $A_{ts} = ((q_t + u) \cdot k_s + (q_t + v) \cdot W_R R[t-s]) / \sqrt{d_h}$, $R[x] = [\sin(x w) \mid \cos(x w)]$,
        $w_i = 10000^{-2i/d}$. Dai et al. (2019), section 3.3.
    Shapes: content_scores -> [B, H, T, S].
    Source: Dai et al. (2019). Code: kimiyoung/transformer-xl. Survey, equation 14.
    Deviations:
        * The sinusoids have no dropout.
        * There is no memory of earlier segments.
        * The survey counts the projection once per head. In this project, one projection contains the channels of all
          heads.
        * Encoder and cross-attention are extensions of this project. XLNet uses the same
          equation for earlier and later keys.
    Cost: 2 d + L d^2 parameters per stack, L (2 d + d^2) with share=none. Memory O(B H T (T + S)). W_R R is computed once
        per layer and forward pass. A decoding step computes one row of W_R R per layer.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        share: Literal["layers", "none"] = option("layers", "sharing of u and v: across layers as in the authors' code, or none")
        clamp: int | None = option(None, "distance beyond which all distances have the same sinusoid (none: no limit)", minimum=1)

    card = MethodCard(
        name="xl",
        title="Transformer-XL",
        citations=("dai-etal-2019-transformer",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="2 * d * (1 if share == 'layers' else L) + L * d**2",
        survey_parameters="2 d + d^2 L h",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        layers = 1 if options.share == "layers" else dims.num_layers
        self.waves = Sinusoids(dims.embed_dim, "halves", "paper")
        self.content_bias = nn.Parameter(torch.zeros(layers, dims.num_heads, dims.head_dim))
        self.position_bias = nn.Parameter(torch.zeros(layers, dims.num_heads, dims.head_dim))
        for bias in (self.content_bias, self.position_bias):
            nn.init.normal_(bias, std=0.02)
        self.projection = nn.Parameter(torch.empty(dims.num_layers, dims.embed_dim, dims.embed_dim))
        for weight in self.projection:
            nn.init.xavier_uniform_(weight)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        bias = (self.of_layer(self.content_bias, ctx) * ctx.scale).unsqueeze(-1).to(q.dtype)
        content = table_product(k, bias).transpose(-1, -2)  # [B, H, 1, S]
        queries = q + self.of_layer(self.position_bias, ctx).unsqueeze(1).to(q.dtype)
        vectors = kept_while_decoding("xl", lambda delta: self._vectors(delta, ctx).to(q.dtype), ctx)
        return content + query_products(queries, ctx, vectors)

    def _vectors(self, delta: Tensor, ctx: AttentionContext) -> Tensor:
        """Return W_R R[-delta], multiplied by the scale of the scores: [W] -> [H, W, D]."""
        weight = self.of_layer(self.projection, ctx)
        waves = same_in_all_layers((self, ctx.scale), lambda x: (self._waves(x) * ctx.scale).to(weight.dtype), ctx)
        return (waves(delta) @ weight.transpose(0, 1)).unflatten(-1, (self.dims.num_heads, -1)).transpose(0, 1)

    def _waves(self, delta: Tensor) -> Tensor:
        """Return R[-delta]: [W] -> [W, C]."""
        return self.waves(-delta if self.options.clamp is None else -delta.clamp(-self.options.clamp, self.options.clamp))

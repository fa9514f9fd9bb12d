"""A bias that is a weighted sum of learned curves of the distance. The weights depend on the query."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import require_integer
from ...ops.precision import at_least_float32
from ...ops.relative import query_products

#: standard deviation of the initial values, as in Inkling
_DEVIATION = 0.02


class RelativeProjection(PositionMethod):
    r"""Add a weighted sum of learned curves to the scores. Each curve has one value per distance. The weights are a projection
    of the hidden state of the query.

    Equation: $b_{ts} = r_t \cdot c[s-t]$ for $|s-t| < R$, else 0, $r_t = W x_t$, with $W$ per head and curves $c \in
        \mathbb{R}^{16 \times R}$ shared by all heads. $x_t$ is the hidden state of the query, and $b_{ts}$ is added to the
        scores.
    Shapes: bias -> [B, H, T, S].
    Source: Inkling in Hugging Face's transformers 5. RelativeProjPositionalBias of x-transformers. There is no paper.
    Deviations:
        * R is 128, because sentences are short. The released model has 1024.
        * The curves start at 0. Both public implementations start them at random (start=normal).
        * W has no bias, as in Inkling. x-transformers has a bias (bias=true).
        * Products of queries and keys keep $1/\sqrt{d_h}$. Inkling normalises queries and keys, and uses the factor
          1/d_h.
        * Encoder and cross-attention, with distances in both directions, are extensions of this project.
    Cost: L (16 d h + 16 R) parameters per stack. Without a causal mask, L (16 d h + 16 (2R - 1)) parameters. For long
        sentences, the products of weights and curves are a tensor [B, H, T, 2R + 1].
    Raises: PositionError for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        vectors: int = option(16, "number of curves", minimum=1, maximum=4096)
        reach: int = option(128, "number R of distances (keys at distance R or more receive 0)", minimum=1, maximum=65536)
        bias: bool = option(False, "bias of the projection, as in x-transformers")
        start: Literal["zero", "normal"] = option("zero", "initial curves: 0, or normal with standard deviation 0.02")

    card = MethodCard(
        name="rel_proj",
        title="Projected relative bias (Inkling)",
        citations=("wang-2020-x-transformers",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="L * vectors * (d * h + bias * h + (reach if causal else 2 * reach - 1))",
    )

    per_layer = content_dependent = True
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        distances = options.reach if dims.causal else 2 * options.reach - 1
        self.weight = self.parameter_table(dims.embed_dim, options.vectors, share="none")
        self.offset = self.parameter_table(options.vectors, share="none") if options.bias else None
        self.bank = self.parameter_table(options.vectors, distances, share="heads")
        nn.init.normal_(self.weight, std=_DEVIATION)
        if options.start == "normal":
            nn.init.normal_(self.bank, std=_DEVIATION)

    def bias(self, ctx: AttentionContext) -> Tensor:
        x = at_least_float32(ctx.inputs[0]).unsqueeze(1)  # [B, 1, T, C]
        read = x @ self.of_layer(self.weight, ctx, float32=True)  # [H, C, vectors] -> [B, H, T, vectors]
        if self.offset is not None:
            read = read + self.of_layer(self.offset, ctx, float32=True).unsqueeze(-2)
        bank, reach = self.of_layer(self.bank, ctx, float32=True)[0], self.options.reach  # [vectors, R or 2R - 1]
        # one column per distance from -R to R. Columns without a learned value are 0
        curves = nn.functional.pad(bank, (1, 2 * reach - bank.size(1)))

        def vectors(distance: Tensor) -> Tensor:
            return curves[:, require_integer(distance).clamp(-reach, reach) + reach].mT.unsqueeze(0)  # [W] -> [1, W, vectors]

        return query_products(read, ctx, vectors, limit=reach)

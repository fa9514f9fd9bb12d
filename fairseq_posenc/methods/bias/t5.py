"""A learned scalar for each bucket of distances."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.buckets import log_buckets
from ...ops.distances import by_distance


class T5(PositionMethod):
    r"""Add a learned scalar per head and bucket of distances to the scores.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + w[\operatorname{bucket}(s-t)]$, with $w$ learned. Raffel et al. (2020),
        section 2.1.
    Shapes: bias -> [1, H, T, S].
    Source: Raffel et al. (2020). Code: mesh-tensorflow, and T5 in Hugging Face's transformers.
    Deviations:
        * The product of queries and keys keeps $1/\sqrt{d_h}$. T5 includes this factor in the initial weights.
        * The survey counts one scalar per distance, not per bucket.
        * Cross-attention is an extension of this project, with a separate table and bidirectional buckets. T5
          does not have a bias in cross-attention.
    Cost: buckets * h parameters per stack. Each forward pass computes T + S - 1 values per head, one per distance.
    Raises: PositionError for an odd number of buckets outside a causal decoder. PositionError if max_distance is not larger
        than a quarter of the number of buckets, or half of this number in a causal decoder.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        buckets: int = option(32, "number of buckets in both directions together", minimum=4, maximum=65536)
        max_distance: int = option(
            128,
            "distance in tokens at which the logarithmic buckets end (by default, the last bucket begins at 91, or at 113 in the "
            "decoder)",
            minimum=2,
            maximum=65536,
        )
        share: Literal["layers", "none", "heads"] = option("layers", "sharing of the table: across heads, across layers, or none")

    card = MethodCard(
        name="t5",
        title="T5 relative position bias",
        citations=("raffel-etal-2020-exploring",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="tables * buckets",
        survey_parameters="(2n-1) h",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.both_ways = not dims.causal
        if self.both_ways and options.buckets % 2:
            raise PositionError(
                f"t5: buckets={options.buckets} is odd. Expected an even number, half of it for each direction. "
                f"Use buckets={options.buckets + 1}."
            )
        exact = options.buckets // (4 if self.both_ways else 2)
        if options.max_distance <= exact:
            raise PositionError(
                f"t5: max_distance={options.max_distance} is too small for buckets={options.buckets}. "
                f"Expected at least {exact + 1}. Increase max_distance or reduce buckets."
            )
        self.per_layer = options.share != "layers"
        self.weight = self.parameter_table(options.buckets, share=options.share)
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)

    def bias(self, ctx: AttentionContext) -> Tensor:
        weight = self.of_layer(self.weight, ctx, float32=True)  # [H or 1, buckets]

        def values(delta: Tensor) -> Tensor:
            return weight[:, log_buckets(delta, self.options.buckets, self.options.max_distance, self.both_ways)]

        return by_distance(ctx.queries, ctx.keys, values)

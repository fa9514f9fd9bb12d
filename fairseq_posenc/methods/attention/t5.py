"""A learned scalar for every bucket of distances."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option
from ...ops.buckets import log_buckets
from ...ops.distances import by_distance
from ...ops.precision import widen


class T5(PositionMethod):
    """A learned scalar for every head and bucket of distances, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + w[bucket(s-t)]; Raffel et al. (2020), section 2.1.
    Shapes: bias -> [1, H, T, S].
    Source: Raffel et al. (2020); mesh-tensorflow and Hugging Face T5.
    Deviations: the product keeps 1/sqrt(d_h), which T5 folds into the initial weights; cross-attention has a table of its own
        with bidirectional buckets, where T5 has none.
    Cost: buckets * h parameters a stack; one vector of T + S - 1 values a forward.
    """

    @dataclass(frozen=True)
    class Options(Options):
        buckets: int = option(32, "number of buckets, both directions together", minimum=4)
        max_distance: int = option(128, "distance from which all keys share a bucket", minimum=2)
        share: Literal["layers", "none", "heads"] = option("layers", "who has the table in common")

    card = MethodCard(
        name="t5",
        title="T5 relative position bias",
        citation="""@article{raffel-etal-2020-exploring,
  title = {Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer},
  author = {Raffel, Colin and Shazeer, Noam and Roberts, Adam and Lee, Katherine and Narang, Sharan and Matena, Michael and
            Zhou, Yanqi and Li, Wei and Liu, Peter J.},
  journal = {JMLR}, volume = {21}, year = {2020}}""",
        equation="A_ts = q_t . k_s / sqrt(d_h) + w[bucket(s-t)]",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="peer",
        sites=("encoder", "decoder"),
        our_sites=("cross",),
        parameters="buckets h",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, options.buckets),
        survey_parameters="(2n-1) h",
        deviations=(
            "the product keeps 1/sqrt(d_h)",
            "the survey counts every distance instead of every bucket",
            "cross-attention is our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.both_ways = site != "decoder"
        if self.both_ways and options.buckets % 2:
            raise PositionError(f"t5: buckets={options.buckets} must be even at {site}, where half of them serve each direction")
        exact = options.buckets // (4 if self.both_ways else 2)
        if options.max_distance <= exact:
            raise PositionError(f"t5: max_distance={options.max_distance} must be more than the {exact} exact buckets at {site}")
        self.per_layer = options.share != "layers"
        self.weight = self.parameter_table(options.buckets, share=options.share)
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)

    def bias(self, ctx: AttentionContext) -> Tensor:
        weight = widen(self.of_layer(self.weight, ctx))  # [H or 1, buckets]

        def values(delta: Tensor) -> Tensor:
            return weight[:, log_buckets(delta, self.options.buckets, self.options.max_distance, self.both_ways)]

        return by_distance(ctx.queries, ctx.keys, values)

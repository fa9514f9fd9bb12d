"""A learned factor for every distance."""

from dataclasses import dataclass
from typing import Literal, Optional

from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import by_distance, table_row
from ...ops.precision import widen


class Huang2(PositionMethod):
    """Scores multiplied by a learned scalar of the signed distance.

    Equation: A_ts = (q_t . k_s) r[s-t] / sqrt(d_h); Huang et al. (2020), method 2.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Huang, Liang, Xu and Xiang (2020); survey, equation 19.
    Deviations: factors start at 1 (the paper does not say; a start near 0 makes attention uniform); distances beyond the table
        use its ends; cross-attention is ours.
    Cost: L h (2n - 1) parameters a stack; one product of the size of the scores a layer.
    """

    @dataclass(frozen=True)
    class Options(Options):
        max_distance: Optional[int] = option(None, "distance at which the table ends (none: max_positions - 1)", minimum=1)
        share: Literal["none", "heads", "layers"] = option("none", "who has the table in common")

    card = MethodCard(
        name="huang2",
        title="Huang et al., method 2 (multiplicative)",
        citation="""@inproceedings{huang-etal-2020-improve,
  title = {Improve Transformer Models with Better Relative Position Embeddings},
  author = {Huang, Zhiheng and Liang, Davis and Xu, Peng and Xiang, Bing},
  booktitle = {Findings of EMNLP}, year = {2020}}""",
        equation="A_ts = (q_t . k_s) r[s-t] / sqrt(d_h)",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="L h (2n-1)",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * _reach(options, dims) + 1),
        survey_parameters="d L h (2n-1)",
        deviations=(
            "factors start at 1, which the paper leaves open",
            "distances beyond the table use its ends",
            "the survey's formula is that of methods 3 and 4; this method has one scalar where they have a vector",
            "decoder and cross-attention are our extension",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.reach = _reach(options, dims)
        self.factor = self.parameter_table(2 * self.reach + 1, share=options.share)
        nn.init.ones_(self.factor)

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        factor = widen(self.of_layer(self.factor, ctx))  # [H or 1, 2 * reach + 1]

        def values(delta: Tensor) -> Tensor:
            return factor[:, table_row(delta, self.reach)]

        return scores * by_distance(ctx.queries, ctx.keys, values)


def _reach(options, dims) -> int:
    return options.max_distance or max(dims.max_positions, dims.max_key_positions) - 1

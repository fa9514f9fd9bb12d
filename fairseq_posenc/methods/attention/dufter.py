"""A learned scalar for every pair of positions, or for every distance, in the first layer."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, across_layers, option
from ...ops.distances import from_table
from ...ops.pairs import pairs
from ...ops.precision import widen

_CITATION = """@inproceedings{dufter-etal-2020-increasing,
  title = {Increasing Learning Efficiency of Self-Attention Networks through Direct Position Interactions, Learnable
           Temperature, and Convoluted Attention},
  author = {Dufter, Philipp and Schmitt, Martin and Sch{\\"u}tze, Hinrich},
  booktitle = {COLING}, year = {2020}}"""
_FIRST = "every layer unless layers=0 is given; posenc_dufter_abs and posenc_dufter_rel have the first alone, as the authors"


@dataclass(frozen=True)
class _Options(Options):
    share: Literal["none", "heads", "layers", "all"] = option("none", "who has the table in common")


class DufterAbsolute(PositionMethod):
    """A learned scalar for every head and pair of positions, added to the scores; the authors have it in the first layer.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + P[t,s]; Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020); pdufter/convatt.
    Deviations: decoder and cross-attention are ours.
    Cost: h n^2 parameters a layer; memory n^2 h, read once a forward.
    """

    Options = _Options
    card = MethodCard(
        name="dufter_abs",
        title="Direct position interactions, absolute",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) + P[t,s]",
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="error",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="h n^2 per layer",
        count=lambda options, dims, site: PositionMethod.table_count(
            options.share, dims, dims.max_positions * dims.max_key_positions
        ),
        deviations=(_FIRST, "decoder and cross-attention are our extension"),
        stacks={"encoder": "dufter_abs:layers=0", "decoder": "dufter_abs:layers=0"},
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.per_layer = not across_layers(options.share)
        self.table = self.parameter_table(dims.max_positions, dims.max_key_positions, share=options.share)
        nn.init.normal_(self.table, std=(2 / (dims.max_positions + dims.max_key_positions)) ** 0.5)  # Glorot

    def bias(self, ctx: AttentionContext) -> Tensor:
        return widen(pairs(self.of_layer(self.table, ctx), ctx.queries, ctx.keys))


class DufterRelative(PositionMethod):
    """A learned scalar for every head and distance, added to the scores; the authors have it in the first layer.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + r[s-t]; Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020); pdufter/convatt.
    Deviations: tells left from right, where the code's circulant appears to be symmetric; distances beyond the table use its
        ends; decoder and cross-attention are ours.
    Cost: h (2n - 1) parameters a layer; one vector of T + S - 1 values a forward.
    """

    Options = _Options
    card = MethodCard(
        name="dufter_rel",
        title="Direct position interactions, relative",
        citation=_CITATION,
        equation="A_ts = q_t . k_s / sqrt(d_h) + r[s-t]",
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder",),
        our_sites=("decoder", "cross"),
        parameters="h (2n-1) per layer",
        count=lambda options, dims, site: PositionMethod.table_count(options.share, dims, 2 * dims.max_distance + 1),
        deviations=(
            _FIRST,
            "tells left from right, where the authors' circulant appears to be symmetric",
            "distances beyond the table use its ends",
            "decoder and cross-attention are our extension",
        ),
        stacks={"encoder": "dufter_rel:layers=0", "decoder": "dufter_rel:layers=0"},
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.per_layer = not across_layers(options.share)
        self.table = self.parameter_table(2 * dims.max_distance + 1, share=options.share)
        nn.init.normal_(self.table, std=(2 / (1 + dims.max_distance)) ** 0.5 / 2)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return from_table(widen(self.of_layer(self.table, ctx)), ctx.queries, ctx.keys)

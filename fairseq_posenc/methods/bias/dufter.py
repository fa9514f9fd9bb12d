"""A learned scalar for each pair of positions, or for each distance."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option, shared_by_layers
from ...ops.distances import from_table
from ...ops.pairs import pairs
from ...ops.precision import at_least_float32


@dataclass(frozen=True)
class _Options(MethodOptions):
    share: Literal["none", "heads", "layers", "all"] = option("none", "share one table across heads, layers or both")


class DufterAbsolute(PositionMethod):
    """A learned scalar for each head and pair of positions, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + P[t,s]; Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020); pdufter/convatt.
    Deviations: all layers unless layers=0 is given, where the authors and posenc_dufter_abs use only the first layer; decoder
        and cross-attention are our extension.
    Cost: h n^2 parameters per layer, which are read once per forward pass.
    Errors: PositionError for positions past the table and for fractions of positions.
    """

    Options = _Options
    card = MethodCard(
        name="dufter_abs",
        title="Direct position interactions, absolute",
        citations=("dufter-etal-2020-increasing",),
        survey="not in its Table 1",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="tables * n * m",
        default_specs={"encoder": "dufter_abs:layers=0", "decoder": "dufter_abs:layers=0"},
    )
    position_type = "integer"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = not shared_by_layers(options.share)
        self.table = self.parameter_table(dims.max_positions, dims.max_key_positions, share=options.share)
        nn.init.normal_(self.table, std=(2 / (dims.max_positions + dims.max_key_positions)) ** 0.5)  # Glorot

    def bias(self, ctx: AttentionContext) -> Tensor:
        return at_least_float32(pairs(self.of_layer(self.table, ctx), ctx.queries, ctx.keys))


class DufterRelative(PositionMethod):
    """A learned scalar for each head and distance, added to the scores.

    Equation: A_ts = q_t . k_s / sqrt(d_h) + r[s-t]; Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020); pdufter/convatt.
    Deviations: all layers unless layers=0 is given, where the authors and posenc_dufter_rel use only the first layer; left
        and right are told apart, where the authors' circulant appears to be symmetric; distances beyond the table use its ends;
        decoder and cross-attention are our extension.
    Cost: h (2n - 1) parameters per layer; one vector of T + S - 1 values per forward pass.
    Errors: PositionError for fractions of positions.
    """

    Options = _Options
    card = MethodCard(
        name="dufter_rel",
        title="Direct position interactions, relative",
        citations=("dufter-etal-2020-increasing",),
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="tables * (2 * max(n, m) - 1)",
        default_specs={"encoder": "dufter_rel:layers=0", "decoder": "dufter_rel:layers=0"},
    )
    position_type = "integer"

    def __init__(self, options: _Options, dims: Dims):
        super().__init__(options, dims)
        self.per_layer = not shared_by_layers(options.share)
        self.table = self.parameter_table(2 * dims.max_distance + 1, share=options.share)
        nn.init.normal_(self.table, std=(2 / (1 + dims.max_distance)) ** 0.5 / 2)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return from_table(at_least_float32(self.of_layer(self.table, ctx)), ctx.queries, ctx.keys)

"""A learned scalar for each pair of positions, or for each distance."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option, shared_by_layers
from ...ops.distances import from_table
from ...ops.pairs import pairs
from ...ops.precision import at_least_float32


@dataclass(frozen=True)
class _Options(MethodOptions):
    share: Literal["none", "heads", "layers", "all"] = option(
        "none", "sharing of the table: across heads, across layers, both (all), or none"
    )


class DufterAbsolute(PositionMethod):
    r"""Add a learned scalar per head and pair of positions to the scores.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + P[t,s]$, with $P$ learned. Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020). Code: pdufter/convatt.
    Deviations:
        * By default, all layers use the method. The authors and posenc_dufter_abs use the method only in the first layer
          (layers=0).
        * Decoder and cross-attention are extensions of this project.
    Cost: h n^2 parameters per layer. Each forward pass reads each table once.
    Raises: PositionError for positions beyond the table, and for non-integer positions.
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
        nn.init.normal_(self.table, std=(2 / (dims.max_positions + dims.max_key_positions)) ** 0.5)  # Glorot and Bengio (2010)

    def bias(self, ctx: AttentionContext) -> Tensor:
        return at_least_float32(pairs(self.of_layer(self.table, ctx), ctx.queries, ctx.keys))


class DufterRelative(PositionMethod):
    r"""Add a learned scalar per head and distance to the scores.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + r[s-t]$, with $r$ learned. Dufter et al. (2020).
    Shapes: bias -> [1, H, T, S].
    Source: Dufter, Schmitt and Schuetze (2020). Code: pdufter/convatt.
    Deviations:
        * By default, all layers use the method. The authors and posenc_dufter_rel use the method only in the first layer
          (layers=0).
        * r distinguishes left from right. The authors' circulant matrix appears to be symmetric.
        * Distances beyond the table share the last entry of their direction.
        * Decoder and cross-attention are extensions of this project.
    Cost: h (2n - 1) parameters per layer. Each layer computes T + S - 1 values per head, one per distance.
    Raises: PositionError for non-integer positions.
    """

    Options = _Options
    card = replace(
        DufterAbsolute.card,
        name="dufter_rel",
        title="Direct position interactions, relative",
        reference="relative",
        extrapolation="clips",
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
        return from_table(self.of_layer(self.table, ctx, float32=True), ctx.queries, ctx.keys)

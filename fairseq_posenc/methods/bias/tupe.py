"""Dot products of position vectors. Position vectors and tokens have separate projections. All layers share the products."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.buckets import log_buckets
from ...ops.distances import by_distance, require_integer
from ...ops.precision import at_least_float32

_BUCKETS, _MAX_DISTANCE = 32, 128


class TupeAbsolute(PositionMethod):
    r"""Add dot products of position vectors to the scores of all layers. Position vectors have other projections than tokens.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{2 d_h} + (LN(p_t) U_Q) \cdot (LN(p_s) U_K) / \sqrt{2 d_h}$, with learned position
        vectors $p_t$, projections $U_Q$ and $U_K$, and layer norm $LN$. Ke et al. (2021), equation 7. With `untie_first`, the
        second term is $\theta_1$ if the query is at the first position. For all other queries, the second term is $\theta_2$ if
        the key is at the first position.
        $\theta_1 = (LN(u_0) U_Q) \cdot (LN(u_0) U_K) / \sqrt{2 d_h}$. $\theta_2$ is this product with $u_1$ in place of $u_0$.
        $u_0$ and $u_1$ are the rows 0 and 1 of the table. The form with `untie_first` has
        equations 9 and 10.
    Shapes: bias -> [1, H, T, S].
    Source: Ke, He and Liu (2021). Code: guolinke/TUPE.
    Deviations:
        * By default, the first position is not untied, because a translation source has no [CLS]. untie_first=true unties the
          first position.
        * As in the authors' code, theta_1 is equal for all keys of the first query. Row 0 of the table therefore never receives a
          gradient.
        * Without untie_first, the bias of the key projection also never receives a gradient.
        * The survey counts neither the biases nor the layer norm.
        * The survey adds the term only in the first layer. The authors' code adds the term in all layers.
        * The survey's number of parameters, 2 d^2 + n (d+2), is the number for tupe_rel. It contains 2 n parameters of the
          relative bias.
        * Decoder and cross-attention are extensions of this project. In cross-attention, keys have a separate table and norm.
    Cost: (n + 1) d + 2 (d^2 + d) + 2 d parameters per stack. One matrix product of the projected position vectors per
        forward pass.
    Raises: PositionError for untie_first in cross-attention, for positions beyond the table, and for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        untie_first: bool = option(
            False, "separate scores of the first position, as in the paper for [CLS] (not in cross-attention)"
        )

    card = MethodCard(
        name="tupe_abs",
        title="TUPE, absolute",
        citations=("ke-etal-2021-rethinking",),
        survey="4.1.2",
        reference="absolute",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="error",
        evidence="paper",
        sites=("encoder",),
        extended_sites=("decoder", "cross"),
        parameters="(n + 1) * d + 2 * (d**2 + d) + 2 * d + cross * ((m + 1) * d + 2 * d)",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.untie_first and dims.cross:
            raise PositionError(f"{self.card.name}: untie_first is not supported at site cross. Remove untie_first.")
        self.query_positions = _PositionTable(dims.max_positions, dims.embed_dim)
        self.key_positions = _PositionTable(dims.max_key_positions, dims.embed_dim) if dims.cross else None
        self.query_proj = nn.Linear(dims.embed_dim, dims.embed_dim)
        self.key_proj = nn.Linear(dims.embed_dim, dims.embed_dim)
        for projection in (self.query_proj, self.key_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
            nn.init.zeros_(projection.bias)

    def scale(self, ctx: AttentionContext) -> float:
        return (2 * self.dims.head_dim) ** -0.5

    def bias(self, ctx: AttentionContext) -> Tensor:
        scores = self._queries(ctx) @ self._keys(ctx).transpose(-1, -2)
        if self.options.untie_first:
            scores = self._untie(scores, ctx)
        return at_least_float32(scores)

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        return None if self.options.untie_first else (self._queries(ctx), self._keys(ctx))

    def _queries(self, ctx: AttentionContext) -> Tensor:
        """Return the projected positions of the queries, times the scale: [B or 1, H, T, D]."""
        return ctx.scale * self._heads(self.query_proj(self.query_positions(ctx.queries.ids + 1)))

    def _keys(self, ctx: AttentionContext) -> Tensor:
        """Return the projected positions of the keys, [B or 1, H, S, D].

        In cross-attention, decoding computes the projected positions only once if all sentences have the same source positions.
        """
        once = ctx.state is not None and self.dims.cross and ctx.keys.start is not None
        known = ctx.state.get("tupe") if once else None
        if known is not None:
            return known
        table = self.query_positions if self.key_positions is None else self.key_positions
        keys = self._heads(self.key_proj(table(ctx.keys.ids + 1)))
        return ctx.state.store_shared("tupe", keys) if once else keys

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.dims.num_heads, -1)).transpose(1, 2)  # [B, T, C] -> [B, H, T, D]

    def _untie(self, scores: Tensor, ctx: AttentionContext) -> Tensor:
        ends = self.query_positions(torch.arange(2, device=scores.device).unsqueeze(0))
        q, k = self._heads(self.query_proj(ends)), self._heads(self.key_proj(ends))
        from_first, to_first = (ctx.scale * (q * k).sum(-1)).unbind(-1)  # [1, H] each
        first_row, first_column = _first(ctx)
        scores = torch.where(first_column, to_first[..., None, None], scores)
        # the column is set before the row, as in the authors' code
        return torch.where(first_row, from_first[..., None, None], scores)


class TupeRelative(TupeAbsolute):
    r"""Add TUPE's absolute term and a T5 bias to the scores of all layers.

    Equation: `tupe_abs` $+ b[\operatorname{bucket}(s-t)]$, with $b$ learned. Ke et al. (2021), equation 8. With `untie_first`,
        column 0 has bucket 32, and row 0 has bucket 16.
    Shapes: bias -> [1, H, T, S].
    Source: Ke, He and Liu (2021). Code: guolinke/TUPE.
    Deviations:
        * The deviations of tupe_abs also apply to tupe_rel.
        * The survey counts one relative bias per distance. This method has one relative bias per bucket and head.
        * Bucket 32 receives no gradient without untie_first.
        * Outside a causal decoder, bucket 16 never receives a gradient. No distance has this bucket. With untie_first, all keys
          of the first query have this bucket, which does not change the softmax.
        * A causal decoder has unidirectional buckets.
    Cost: 33 h parameters per stack more than tupe_abs.
    Raises: PositionError for untie_first in cross-attention, for positions beyond the table, and for non-integer positions.
    """

    card = replace(
        TupeAbsolute.card,
        name="tupe_rel",
        title="TUPE, absolute and relative",
        reference="both",
        parameters="(n + 1) * d + 2 * (d**2 + d) + 2 * d + cross * ((m + 1) * d + 2 * d) + 33 * h",
        survey_parameters="2 d^2 + n (d+2)",
    )

    def __init__(self, options: TupeAbsolute.Options, dims: Dims):
        super().__init__(options, dims)
        self.bucket_bias = nn.Parameter(torch.zeros(dims.num_heads, _BUCKETS + 1))
        nn.init.normal_(self.bucket_bias, std=dims.embed_dim**-0.5)

    def bias(self, ctx: AttentionContext) -> Tensor:
        absolute = super().bias(ctx)
        weight = self.bucket_bias.to(absolute.dtype)

        def values(delta: Tensor) -> Tensor:
            return weight[:, log_buckets(delta, _BUCKETS, _MAX_DISTANCE, not self.dims.causal)]

        relative = by_distance(ctx.queries, ctx.keys, values)
        if self.options.untie_first:
            first_row, first_column = _first(ctx)
            relative = torch.where(first_column, weight[:, _BUCKETS, None, None], relative)
            relative = torch.where(first_row, weight[:, _BUCKETS // 2, None, None], relative)
        return absolute.add_(relative)

    def bias_factors(self, ctx: AttentionContext) -> None:
        """Return None, because the T5 bias has no factors of a small width."""


class _PositionTable(nn.Module):
    """Learned vectors of positions with a layer norm. Row 0 is for the untied first position."""

    def __init__(self, positions: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(positions + 1, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.norm = nn.LayerNorm(width)

    def forward(self, rows: Tensor) -> Tensor:
        return self.norm(self.embedding(require_integer(rows)))


def _first(ctx: AttentionContext) -> tuple[Tensor, Tensor]:
    """Return whether the query, and whether the key, is at the first position: [B or 1, 1, T, 1] and [B or 1, 1, 1, S]."""
    first_row = (ctx.queries.ids == 0)[:, None, :, None]
    first_column = (ctx.keys.ids == 0)[:, None, None, :]
    return first_row, first_column

"""Positions counted by the words themselves."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import distances
from ...ops.precision import widen


class ContextualPositions(PositionMethod):
    """A query opens a gate for every key; how many gates lie between them is the position of the key.

    Equation: A_ts = a_ts + q_t . e[p_ts], p_ts = sum_(j=s..t) sigmoid(a_tj), a_ts = q_t . k_s / sqrt(d_h), e between two whole
        positions by linear interpolation; Golovneva et al. (2024).
    Shapes: rescale [B, H, T, S] -> same.
    Source: Golovneva, Wang, Weston and Sukhbaatar (2024); x-transformers.
    Deviations: gates read scaled scores and q_t . e is unscaled, as in x-transformers, which is unverified; encoder (a table for
        each side) and cross-attention (gates from the key to the last source word) are ours and experimental.
    Cost: L largest d_h parameters a stack where heads share; logits of all positions for every query, two gathers.
    """

    @dataclass(frozen=True)
    class Options(Options):
        largest: int = option(64, "number of positions; further ones use the last", minimum=2)
        share: Literal["heads", "none", "layers", "all"] = option("heads", "who has the tables in common")

    card = MethodCard(
        name="cope",
        title="Contextual position encoding (CoPE)",
        citation="""@article{golovneva-etal-2024-contextual,
  title = {Contextual Position Encoding: Learning to Count What's Important},
  author = {Golovneva, Olga and Wang, Tianlu and Weston, Jason and Sukhbaatar, Sainbayar},
  journal = {arXiv:2405.18719}, year = {2024}}""",
        equation="A_ts = a_ts + q_t . e[p_ts], p_ts = sum_(j=s..t) sigmoid(a_tj)",
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="peer",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        parameters="L largest d_h; encoder: twice as many",
        count=lambda options, dims, site: PositionMethod.table_count(
            options.share, dims, options.largest * dims.head_dim * (2 if site == "encoder" else 1)
        ),
        deviations=(
            "gates read scaled scores and positions meet unscaled queries, which is unverified",
            "64 positions and tables of every layer are unverified",
            "encoder and cross-attention are our extension, and experimental",
        ),
    )

    rescales = "content"

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.table = self.parameter_table(options.largest, dims.head_dim, share=options.share)  # starts at 0, as the authors'
        twice = site == "encoder"
        self.right_table = self.parameter_table(options.largest, dims.head_dim, share=options.share) if twice else None

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        gates = widen(scores).sigmoid()
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        left = torch.ones_like(delta, dtype=torch.bool) if ctx.site == "cross" else delta <= 0
        if ctx.key_padding is not None:
            gates = gates.masked_fill(ctx.key_padding[:, None, None, :], 0.0)
        found = self._logits(q, self.table, _to_the_end(gates * left), ctx)
        if self.right_table is not None:
            right = self._logits(q, self.right_table, (gates * (delta >= 0)).cumsum(-1), ctx)
            found = torch.where(left, found, right)
        return scores + found

    def _logits(self, q: Tensor, table: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """q_t . e at fractional positions [B, H, T, S]."""
        along = widen(q @ self.of_layer(table, ctx).to(q.dtype).mT)  # [B, H, T, largest]
        positions = positions.clamp(max=self.options.largest - 1)
        low = positions.detach().floor()
        weight = positions - low
        low, high = low.long(), positions.detach().ceil().long()
        return (1 - weight) * along.gather(-1, low) + weight * along.gather(-1, high)


def _to_the_end(x: Tensor) -> Tensor:
    """Sums from every column to the last one."""
    return x.flip(-1).cumsum(-1).flip(-1)

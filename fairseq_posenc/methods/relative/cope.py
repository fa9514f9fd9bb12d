"""Positions that depend on the content of tokens."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.distances import distances
from ...ops.kernels.contextual import ContextualProducts
from ...ops.precision import at_least_float32


class ContextualPositions(PositionMethod):
    r"""Add products of queries with learned vectors of contextual positions. A contextual position is a sum of gates
    between key and query.

    Equation: $A_{ts} = a_{ts} + q_t \cdot e[p_{ts}]$, $p_{ts} = \sum_{j=s}^{t} \operatorname{sigmoid}(a_{tj})$, $a_{ts} = q_t
        \cdot k_s / \sqrt{d_h}$ (Golovneva et al. 2024). Between two whole positions, $e$ is interpolated linearly. With
        `scale=code`, $q_t \cdot e[p_{ts}]$ is also divided by $\sqrt{d_h}$.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Golovneva, Wang, Weston and Sukhbaatar (2024), appendix. Code: x-transformers. Code: facebookresearch/RAM
        (scale=code).
    Deviations:
        * q_t . e is added unscaled, as in the paper's appendix and x-transformers.
        * The authors' repository divides $q_t \cdot e$ by $\sqrt{d_h}$ by default (scale=code). Its option --cope-nodiv is
          scale=paper.
        * 64 positions, and separate tables for the layers, are unverified.
        * The encoder is an experimental extension of this project. It has one table per direction.
        * Cross-attention is an experimental extension of this project. Its sums run from the key to the last source token.
    Cost: L largest d_h parameters per stack if heads share tables. Each direction needs products of all queries with all
        positions, one gather, and one cumulative sum over the scores.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        largest: int = option(64, "number of positions (larger positions use the last vector)", minimum=2, maximum=65536)
        scale: Literal["paper", "code"] = option(
            "paper", "factor of q . e: 1 as in the paper's appendix, or 1/sqrt(d_h) as in the authors' repository"
        )
        share: Literal["heads", "none", "layers", "all"] = option(
            "heads", "sharing of the table: across heads, across layers, both (all), or none"
        )

    card = MethodCard(
        name="cope",
        title="Contextual position encoding (CoPE)",
        citations=("golovneva-etal-2024-contextual",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
        parameters="tables * largest * d_h * (1 if causal or cross else 2)",
    )

    rescale_reads = "content"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        # starts at 0, as in the authors' code
        self.table = self.parameter_table(options.largest, dims.head_dim, share=options.share)
        twice = not (dims.causal or dims.cross)
        self.right_table = self.parameter_table(options.largest, dims.head_dim, share=options.share) if twice else None

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        left, right = ctx.once(self, lambda: self._hidden(scores, ctx))
        found = ContextualProducts.apply(scores, self._logits(self.table, q, ctx), left, False)
        if self.right_table is not None:
            further = ContextualProducts.apply(scores, self._logits(self.right_table, q, ctx), right, True)
            found = further.where(distances(ctx.queries, ctx.keys).unsqueeze(1) > 0, found)
        return scores + found

    def _hidden(self, scores: Tensor, ctx: AttentionContext) -> list[Tensor]:
        """Return 0, or -inf at keys without a gate, for sums from the left and from the right: [B or 1, 1, T or 1, S] each."""
        none = torch.zeros(1, scores.size(-1), dtype=torch.float32, device=scores.device)
        if ctx.key_padding is not None:
            none = none.masked_fill(ctx.key_padding[:, None, None], float("-inf"))
        if ctx.cross:
            return [none, none]
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        return [none.masked_fill(side, float("-inf")) for side in (delta > 0, delta < 0)]

    def _logits(self, table: Tensor, q: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the products of queries with all positions of a table, [B, H, T, largest]."""
        q = q * ctx.scale if self.options.scale == "code" else q
        vectors = self.of_layer(table, ctx).squeeze(0)  # [largest, d_h] for all heads, or [H, largest, d_h]
        return at_least_float32(q @ vectors.to(q.dtype).mT)

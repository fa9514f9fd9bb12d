"""Positions that depend on the content of tokens."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops import devices
from ...ops.kernels.contextual import InterpolatedBothWays, contextual_scores
from ...ops.precision import at_least_float32
from ...ops.running import order


class ContextualPositions(PositionMethod):
    r"""Add products of queries with learned vectors to the scores. The contextual position of a key selects its vector. The
    position is the sum of the gates from the key to the query. Each gate is a sigmoid of a score.

    Equation: $A_{ts} = a_{ts} + q_t \cdot e[p_{ts}]$, $p_{ts} = \sum_{j=s}^{t} \operatorname{sigmoid}(a_{tj})$, $a_{ts} = q_t
        \cdot k_s / \sqrt{d_h}$ (Golovneva et al. 2024). Between two whole positions, $e$ is interpolated linearly. With
        `scale=code`, $q_t \cdot e[p_{ts}]$ is also divided by $\sqrt{d_h}$.
    Shapes: rescale [B, H, T, S] -> same.
    Source: Golovneva, Wang, Weston and Sukhbaatar (2024), appendix. Code: x-transformers. Code: facebookresearch/RAM
        (scale=code).
    Deviations:
        * q_t . e is added unscaled, as in the paper's appendix and x-transformers.
        * The authors' repository divides $q_t \cdot e$ by $\sqrt{d_h}$ by default (scale=code). With the repository's option
          --cope-nodiv, the product is not divided (scale=paper).
        * The default number of positions is 64. According to a public review, the paper's language models have 64 positions for
          texts of 1024 tokens. The default of the authors' repository is the maximum length plus 1.
        * Heads share a table, and each layer has its own table, as in the authors' repository. With the repository's option
          --cope-shared, layers share the table (share=all).
        * The encoder is an experimental extension of this project. It has one table per direction.
        * Cross-attention is an experimental extension of this project. In cross-attention, a contextual position is the sum of
          the gates from the key to the last source token.
    Cost: L P d_h parameters per stack if heads share tables, where P is the value of `largest`. The encoder has twice as many
        parameters. Each layer computes the products of all queries with all vectors of the tables. Each layer also computes one
        interpolation and one cumulative sum of the gates. On a CPU, the interpolation reads two table entries per pair of
        query and key, and the encoder computes the interpolation and the sum twice, once per direction.
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
        # all entries of the table are 0 before training, as in the authors' code
        self.table = self.parameter_table(options.largest, dims.head_dim, share=options.share)
        twice = not (dims.causal or dims.cross)
        self.right_table = self.parameter_table(options.largest, dims.head_dim, share=options.share) if twice else None

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        first = ctx.first_query
        if self.right_table is not None and first is not None and not devices.on_cpu(scores):
            vectors = torch.cat([self.of_layer(self.table, ctx).flip(-2), self.of_layer(self.right_table, ctx)], -2)
            given = ctx.once((self, "both"), lambda: (self._all_keys(scores, ctx), self._later(scores, first)))
            return InterpolatedBothWays.apply(scores, self._logits(vectors, q, ctx), *given, first)
        left, right = ctx.once(self, lambda: self._counts(scores, ctx))
        found = contextual_scores(scores, self._logits(self.of_layer(self.table, ctx), q, ctx), left, False)
        if self.right_table is not None:
            further = contextual_scores(scores, self._logits(self.of_layer(self.right_table, ctx), q, ctx), right, True)
            found = further.where(self._distances(ctx) > 0, found)
        return found

    def _counts(self, scores: Tensor, ctx: AttentionContext) -> list[Tensor]:
        """Return two tensors that are 1 at keys with a gate and 0 at other keys: [B or 1, 1, T or 1, S] each.

        In the first tensor, keys up to the query have a gate. In the second tensor, the key of the query and all later keys
        have a gate. Padding has no gate. In cross-attention, all keys except padding have a gate in both tensors.
        """
        all_keys = self._all_keys(scores, ctx)
        if ctx.cross:
            return [all_keys, all_keys]
        delta = self._distances(ctx)
        return [all_keys.masked_fill(side, 0.0) for side in (delta > 0, delta < 0)]

    @staticmethod
    def _distances(ctx: AttentionContext) -> Tensor:
        """Return the number of tokens from each query to each key: [B or 1, 1, T, S]."""
        queries, keys = order(ctx)
        return (keys.unsqueeze(-2) - queries.unsqueeze(-1)).unsqueeze(1)

    @staticmethod
    def _all_keys(scores: Tensor, ctx: AttentionContext) -> Tensor:
        """Return a tensor that is 0 at padding and 1 at all other keys: [B or 1, 1, 1, S]."""
        all_keys = torch.ones(1, 1, 1, scores.size(-1), dtype=torch.float32, device=scores.device)
        return all_keys if ctx.key_padding is None else all_keys.masked_fill(ctx.key_padding[:, None, None], 0.0)

    @staticmethod
    def _later(scores: Tensor, first: int) -> Tensor:
        """Return whether a key is after the query, bool [T, S]."""
        return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(first + 1)

    def _logits(self, table: Tensor, q: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the products of queries with all P vectors of a table [H or 1, P, d_h]: [B, H, T, P]."""
        q = q * ctx.scale if self.options.scale == "code" else q
        vectors = table.squeeze(0)  # [P, d_h] for all heads, or [H, P, d_h]
        return at_least_float32(q @ vectors.to(q.dtype).mT)

"""Attention weights by stick-breaking: each key takes a share of the remaining weight, beginning with the nearest key."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import distances
from ...ops.precision import at_least_float32


class StickBreaking(PositionMethod):
    r"""Give the nearest key a share of the attention, the next key a share of the remainder, and so on.

    Equation: $a_{ts} = \operatorname{sigmoid}(z_{ts}) \prod_{s<j<t} (1 - \operatorname{sigmoid}(z_{tj}))$ for $s < t$, $z_{ts} =
        q_t \cdot k_s / \sqrt{d_h}$. The rest $r_t = \prod_{j<t} (1 - \operatorname{sigmoid}(z_{tj}))$ is not given to a key. Tan
        et al. (2025).
    Shapes: rescale [B, H, T, S] -> logarithms of the weights. mask -> bool [1, H, T, S]. content_values -> [B, H, T, D].
    Source: Tan et al. (2025). Code: shawntan/stickbreaking-attention. Code: IBM/dolomite-engine (rest=bias).
    Deviations:
        * The remainder goes to the word itself (rest=self), to a learned vector of each head (rest=bias), or to nothing
          (rest=drop).
        * The weights of a query and its remainder sum to 1, so the softmax of their logarithms is exact.
        * The encoder is an experimental extension of this project. Half of the heads run to the left, the other half to the
          right.
        * The normalisation of heads in dolomite-engine is left out.
    Cost: no parameters, or L d with rest=bias. Scores are stored, with one cumulative sum in float32.
        Minimum cost: two log-sigmoids and the sum, each of [B, H, T, S] numbers, in both passes. A weight depends on all nearer
            keys.
    Raises: PositionError for an odd number of heads in an encoder, and for a method in the same layer that adds to the scores.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        rest: Literal["self", "bias", "drop"] = option(
            "self", "use of the remainder: the word itself, a learned vector of each head, or nothing"
        )

    card = MethodCard(
        name="stickbreaking",
        title="Stick-breaking attention",
        citations=("tan-etal-2025-scaling",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="L * d if rest == 'bias' else 0",
    )

    rescale_reads = "weights"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not dims.causal and dims.num_heads % 2:
            raise PositionError(
                f"stickbreaking: {dims.num_heads} heads are an odd number. Expected an even number of heads in the encoder."
            )
        self.left_heads = dims.num_heads if dims.causal else dims.num_heads // 2
        self.value = self.parameter_table(dims.head_dim, share="none") if options.rest == "bias" else None

    @property
    def hooks(self):
        return super().hooks - ({"content_values"} if self.options.rest == "self" else set())

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        scores, delta = at_least_float32(scores), distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        takes, breaking = F.logsigmoid(scores), self._by_side(delta < 0, delta > 0)
        if ctx.allowed is not None:  # a hidden key takes no share of the weight
            breaking = breaking & ctx.allowed
        passes = F.logsigmoid(-scores).masked_fill(~breaking, 0.0)  # [B, H, T, S]
        left, right = passes.tensor_split([self.left_heads], 1)
        before = torch.cat([_to_the_end(left), right.cumsum(-1)], 1) - passes  # sum over all keys nearer to the query
        return torch.where(delta == 0, passes.sum(-1, keepdim=True), takes + before)

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        return self._by_side(delta <= 0, delta >= 0)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Move the remainder from the token itself to the learned vector."""
        own = distances(ctx.queries, ctx.keys).unsqueeze(1) == 0
        if ctx.key_padding is not None:
            own = own & ~ctx.key_padding[:, None, None]
        rest = probs * own  # [B, H, T, S]
        taken = -(rest @ v)
        if self.value is None:
            return taken
        return taken + rest.sum(-1, keepdim=True) * self.of_layer(self.value, ctx).unsqueeze(-2).to(v.dtype)

    def _by_side(self, left: Tensor, right: Tensor) -> Tensor:
        """Select one mask per head: [B or 1, 1, T, S] twice -> [B or 1, H, T, S].

        The first heads run to the left, the other heads to the right.
        """
        heads = self.left_heads, self.dims.num_heads - self.left_heads
        return torch.cat([side.expand(-1, count, -1, -1) for side, count in zip((left, right), heads)], 1)


def _to_the_end(x: Tensor) -> Tensor:
    """Return the sums from every column to the last column."""
    return x.flip(-1).cumsum(-1).flip(-1)

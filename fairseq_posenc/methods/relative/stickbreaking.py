"""Attention weights by stick-breaking: each key takes a share of the remaining weight, beginning with the nearest key."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import distances
from ...ops.kernels.stick_breaking import StickBreakingLogits


class StickBreaking(PositionMethod):
    r"""Give the nearest key a share of the attention, the next key a share of the remainder, and so on.

    Equation: $a_{ts} = \operatorname{sigmoid}(z_{ts}) \prod_{s<j<t} (1 - \operatorname{sigmoid}(z_{tj}))$ for $s < t$, $z_{ts} =
        q_t \cdot k_s / \sqrt{d_h}$. The remainder $r_t = \prod_{j<t} (1 -
        \operatorname{sigmoid}(z_{tj}))$ is the weight that is left after the shares of all earlier keys. Tan et al. (2025).
    Shapes: rescale [B, H, T, S] -> logarithms of the weights. mask -> bool [1, H, T, S]. content_values -> [B, H, T, D].
    Source: Tan et al. (2025). Code: shawntan/stickbreaking-attention. Code: IBM/dolomite-engine (rest=bias).
    Deviations:
        * The remainder goes to the token itself (rest=self), to a learned vector of each head (rest=bias), or to nothing
          (rest=drop). The first version of the paper and older code of the authors have rest=self. Their published model has
          rest=drop.
        * The weights of all keys and the remainder of a query sum to 1. The softmax of their logarithms therefore returns the
          weights unchanged.
        * The encoder is an experimental extension of this project. In half of the heads, keys on the left take shares. In the
          other half, keys on the right take shares.
        * The normalisation of heads in dolomite-engine is left out.
    Cost: no parameters, or L d with rest=bias. The scores are stored for the backward pass.
        The forward pass requires at least a softplus and a cumulative sum of [B, H, T, S] numbers. The backward pass requires
        at least a sigmoid and a cumulative sum of the same size. The cumulative sums are in float32. The sums are
        necessary, because a weight depends on all nearer keys.
    Raises: PositionError for an odd number of heads in an encoder. PositionError if another method adds terms to the scores of
        the same layer.
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
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"content_values"} if self.options.rest == "self" else set())

    def rescale(self, scores: Tensor, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        breaking, own = ctx.once(self, lambda: self._masks(ctx))
        if ctx.allowed is not None:  # a masked key takes no share of the weight
            breaking = breaking & ctx.allowed
        first = ctx.first_query
        return StickBreakingLogits.apply(scores, breaking, own if first is None else first, self.left_heads)

    def _masks(self, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return two masks: [B or 1, H, T, S] and [B or 1, 1, T, S].

        In each head, the first mask is true at the keys that can take a share of the attention weight. The second mask is true
        at the query's own token.
        """
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)
        return self._by_side(delta < 0, delta > 0), delta == 0

    def mask(self, ctx: AttentionContext) -> Tensor:
        delta = distances(ctx.queries, ctx.keys).unsqueeze(1)  # [B or 1, 1, T, S]
        return self._by_side(delta <= 0, delta >= 0)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        """Remove the value of the token itself from the output. With rest=bias, add the learned vector times the remainder.

        The remainder is the attention weight of the token itself.
        """
        own = distances(ctx.queries, ctx.keys).unsqueeze(1) == 0
        if ctx.key_padding is not None:
            own = own & ~ctx.key_padding[:, None, None]
        rest = probs * own  # [B, H, T, S]
        taken = -(rest @ v)
        if self.value is None:
            return taken
        return taken + rest.sum(-1, keepdim=True) * self.of_layer(self.value, ctx).unsqueeze(-2).to(v.dtype)

    def _by_side(self, left: Tensor, right: Tensor) -> Tensor:
        """Select one mask per head. Shapes: `left` and `right` [B or 1, 1, T, S] -> [B or 1, H, T, S].

        The first `left_heads` heads use `left`. The other heads use `right`.
        """
        heads = self.left_heads, self.dims.num_heads - self.left_heads
        return torch.cat([side.expand(-1, count, -1, -1) for side, count in zip((left, right), heads)], 1)

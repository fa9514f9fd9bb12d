"""Penalties that are sums over the tokens between query and key."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.precision import at_least_float32, softplus
from ...ops.running import at_queries


@dataclass(frozen=True)
class RunningSumOptions(MethodOptions):
    """Options of the methods `cable` and `forgetting`."""

    share: Literal["none", "heads", "layers", "all"] = option(
        "none", "sharing of the table: across heads, across layers, both (all), or none"
    )


class RunningSum(PositionMethod):
    """Compute an increment per token, and running sums of the increments (base class of cable and forgetting).

    Each decoding step adds the increments of the new tokens to the stored sum of the last token.
    """

    Options = RunningSumOptions
    per_layer = content_dependent = True
    #: 1 or -1. In causal attention, the bias is `sign` times the sum at the key, plus a term that is equal for all keys
    sign = 1.0

    def __init__(self, options: RunningSumOptions, dims: Dims):
        super().__init__(options, dims)
        self.weight = self.parameter_table(dims.embed_dim, share=options.share)
        self.offset = self.parameter_table(share=options.share)

    def sums(self, ctx: AttentionContext) -> Tensor:
        """Return the sum of the increments of all tokens up to each key: [B, H or 1, S].

        A subclass can have a second set of increments for keys on the right of the query. The result then contains only the
        increments for keys on the left.
        """
        raise NotImplementedError

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return two factors of the bias: `sign` [1, 1, 1, 1], and the result of `sums` [B, H or 1, S, 1].

        The product of the factors differs from the bias of a query by a number that is equal for all keys. Return None if the
        attention is not causal.
        """
        if not self.dims.causal:
            return None
        sums = self.sums(ctx).unsqueeze(-1)  # [B, H or 1, S, 1]
        return ctx.once((self, "sign", sums.dtype), lambda: sums.new_full((1, 1, 1, 1), self.sign)), sums

    def increments(self, x: Tensor, weight: Tensor, bias: Tensor, ctx: AttentionContext) -> Tensor:
        """Return x_t W + b: [B, T, C] -> [B, H or 1, T]."""
        return (
            at_least_float32(x) @ self.of_layer(weight, ctx, float32=True).mT + self.of_layer(bias, ctx, float32=True)
        ).transpose(-1, -2)

    def running(self, steps: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the running sums of all keys: [B, H or 1, new keys] -> [B, H or 1, S]. Padding adds 0."""
        if ctx.key_padding is not None:
            steps = steps.masked_fill(ctx.key_padding.unsqueeze(1)[..., -steps.size(-1) :], 0.0)
        if ctx.state is None:
            return steps.cumsum(-1)
        known = ctx.state.get("sum")
        sums = steps.cumsum(-1)
        if known is not None:
            sums = torch.cat([known, known[..., -1:] + sums], -1)
        return ctx.state.store_per_row("sum", sums)

    @staticmethod
    def differences(sums: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the running sum up to the key minus the running sum up to the query: [B, H or 1, S] -> [B, H or 1, T, S]."""
        own = at_queries(sums, ctx)
        return sums.unsqueeze(-2) - own.unsqueeze(-1)


class Cable(RunningSum):
    r"""Penalise each key by the sum of learned increments of the tokens after the key, up to the query.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - g_t \sum_{j=s+1}^{t} f(w \cdot x_j + b)$, with $w$ and $b$ learned and $x_j$
        the hidden state of token $j$. Veisi et al. (2025). $f$ is softplus, or ReLU with `increments=relu`. $g_t$ is 1, or
        $\operatorname{softplus}(v \cdot x_t + c)$ with `weights=true`, with $v$ and $c$ learned.
    Shapes: bias -> [B, H, T, S].
    Source: Veisi, Amirzadeh and Mansourian (2025), equations 2 to 7. Code: axiomlab/Cable.
    Deviations:
        * The default is the authors' first code. The paper has increments=relu and weights=true. Its ablation without the weights
          has increments=relu.
        * The initial w and v are normal with standard deviation $1 / \sqrt{d}$. The authors' models have 0.02.
        * The product of queries and keys keeps $1/\sqrt{d_h}$, which the authors' code omits. In the authors'
          code, the divisor of this product is always 1.
        * The encoder is an extension of this project. The authors also train encoders (section 5.5), but their code has no
          encoder. The paper discusses only keys up to the query. In equation 7, the bias of later keys has the opposite sign.
        * The equations of the paper have no b and no c. The authors' code has b.
        * The encoder's sum is symmetric. If query and key exchange their places, the sum contains the same tokens.
    Cost: L (d h + h) parameters per stack, and twice as many with weights=true. Each layer computes running sums [B, H, S].
        Decoding caches these sums.
    """

    card = MethodCard(
        name="cable",
        title="CABLE, context-aware biases",
        citations=("veisi-etal-2025-context",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="tables * (d + 1) * (2 if weights else 1)",
    )

    @dataclass(frozen=True)
    class Options(RunningSumOptions):
        increments: Literal["softplus", "relu"] = option("softplus", "function f of the increments. The paper has relu")
        weights: bool = option(False, "a factor g_t for each query. The paper has true")

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.query_weight = self.parameter_table(dims.embed_dim, share=options.share) if options.weights else None
        self.query_offset = self.parameter_table(share=options.share) if options.weights else None
        for weight in (self.weight, self.query_weight):
            if weight is not None:
                nn.init.normal_(weight, std=dims.embed_dim**-0.5)

    def bias(self, ctx: AttentionContext) -> Tensor:
        bias = self.differences(self.sums(ctx), ctx)
        bias = bias if self.dims.causal else -bias.abs()
        return bias if self.query_weight is None else bias * self._factors(ctx)

    def bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        # with weights, the gradient of a query factor adds products with long sums, which is inexact in half precision
        return None if self.query_weight is not None else super().bias_factors(ctx)

    def sums(self, ctx: AttentionContext) -> Tensor:
        function = softplus if self.options.increments == "softplus" else F.relu
        return self.running(function(self.increments(ctx.inputs[1], self.weight, self.offset, ctx)), ctx)

    def _factors(self, ctx: AttentionContext) -> Tensor:
        """Return the factor of each query: [B, H or 1, T, 1]."""
        assert self.query_weight is not None and self.query_offset is not None
        return softplus(self.increments(ctx.inputs[0], self.query_weight, self.query_offset, ctx)).unsqueeze(-1)

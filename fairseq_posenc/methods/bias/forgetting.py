"""Forget gates of tokens, as a bias on the scores."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, option
from ...ops.distances import distances
from .cable import RunningSum, RunningSumOptions


class Forgetting(RunningSum):
    r"""Weight each key by the product of the forget gates of the tokens after the key, up to the query.

    Equation: $A_{ts} = q_t \cdot k_s / \sqrt{d_h} + \sum_{j=s+1}^{t} \ln \operatorname{sigmoid}(w \cdot x_j + b)$, with $w$ and
        $b$ learned and $x_j$ the hidden state of token $j$. Lin et al. (2025).
    Shapes: bias -> [B, H, T, S].
    Source: Lin et al. (2025). Code: zhixuan-lin/forgetting-transformer. Code: x-transformers (data-dependent ALiBi).
    Deviations:
        * The initial w is normal with standard deviation $1 / \sqrt{d}$. The authors' models have 0.02.
        * Gates start open, at b = 5, as in x-transformers. The authors' gates start at b = 0 (start=0).
        * The encoder is an extension of this project. Keys on the right have a second set of gates, as in x-transformers.
    Cost: L (d h + h) parameters per stack, and twice as many in the encoder. Each layer computes running sums
        [B, H, S]. In the encoder, each layer computes two such tensors. Decoding caches the sums.
    """

    @dataclass(frozen=True)
    class Options(RunningSumOptions):
        start: float = option(5.0, "initial bias b of the gates (0 in the authors' code, 5 in x-transformers)")

    card = MethodCard(
        name="forgetting",
        title="Forgetting Transformer",
        citations=("lin-etal-2025-forgetting",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="peer",
        sites=("decoder",),
        extended_sites=("encoder",),
        parameters="tables * (d + 1) * (1 if causal else 2)",
    )

    sign = -1.0

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        both = not dims.causal
        self.right_weight = self.parameter_table(dims.embed_dim, share=options.share) if both else None
        self.right_offset = self.parameter_table(share=options.share) if both else None
        for weight, offset in ((self.weight, self.offset), (self.right_weight, self.right_offset)):
            if weight is not None and offset is not None:
                nn.init.normal_(weight, std=dims.embed_dim**-0.5)
                nn.init.constant_(offset, options.start)

    def bias(self, ctx: AttentionContext) -> Tensor:
        left = self.differences(-self.sums(ctx), ctx)
        if self.right_weight is None or self.right_offset is None:
            return left
        right = self.differences(self._log_gates(self.right_weight, self.right_offset, ctx), ctx)
        return torch.where(distances(ctx.queries, ctx.keys).unsqueeze(1) <= 0, left, right)

    def sums(self, ctx: AttentionContext) -> Tensor:
        return self._log_gates(self.weight, self.offset, ctx)

    def _log_gates(self, weight: Tensor, offset: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the sums of the logarithms of the gates up to each key: [B, H or 1, S]."""
        return self.running(F.logsigmoid(self.increments(ctx.inputs[1], weight, offset, ctx)), ctx)

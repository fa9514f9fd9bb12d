"""Fixed Gaussian attention weights around a neighbouring token."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.constants import Constants
from ...ops.precision import at_least_float32


class Gaussian(PositionMethod):
    r"""Use fixed attention weights: the density of a normal distribution around the previous token, the next token, or the
    token itself.

    Equation: $\alpha_{ts} = N(s; \gamma t + o_h, \sigma)$, without softmax. $o_h$ is $-1$ in even heads. In odd heads, $o_h$ is
        $1$, or $0$ if attention is causal. $\gamma$ is the option `ratio`. $\gamma$ must be $1$ in self-attention. You et
        al. (2020).
    Shapes: attend -> [B, H, T, D].
    Source: You, Sun and Iyyer (2020). Code: fallcat/stupidNMT.
    Deviations:
        * Projections keep fairseq's biases.
        * --attention-dropout drops weights. The authors' code never drops them.
        * The authors' code sets weights below a threshold to zero. This threshold is left out.
        * The architecture posenc_gaussian has ordinary cross-attention, and adds sinusoids to the embeddings. The authors' best
          recipe does the same.
    Cost: no parameters. Queries and keys have no projections, which saves 2 d^2 + 2 d parameters per layer. One product of
        weights and values.
    Raises: PositionError if the option `ratio` is not 1 at a site other than cross-attention.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        deviation: float = option(1.0, "standard deviation sigma of the weights, in tokens", minimum=1e-3)
        ratio: float = option(1.0, "number gamma of source tokens per target token (only in cross-attention)", minimum=0.0)
        normalise: bool = option(False, "division of the weights by their sum, which is less than 1 near the ends of a sentence")

    card = MethodCard(
        name="gaussian",
        title="Hard-coded Gaussian attention",
        citations=("you-etal-2020-hard",),
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder", "cross"),
        default_specs={"encoder": "sinusoidal+gaussian", "decoder": "sinusoidal+gaussian"},
    )
    projections = frozenset({"value"})

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if not dims.cross and options.ratio != 1.0:
            raise PositionError(f"gaussian: ratio={options.ratio} is supported only at site cross. Remove ratio.")
        other = 0.0 if dims.causal else 1.0
        self.offsets = Constants([-1.0 if head % 2 == 0 else other for head in range(dims.num_heads)])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        exponents = self._exponents(ctx, at_least_float32(v).dtype)
        if self.options.normalise:  # far from the mean, the densities of all keys are 0 in float32, but their softmax is not
            hidden = _masked(torch.ones_like(exponents), ctx) == 0
            weights = exponents.masked_fill(hidden, float("-inf")).softmax(-1)
            weights = weights.masked_fill(hidden, 0.0)  # nan, if a query has no keys
        else:
            weights = _masked(exponents.exp() / (self.options.deviation * math.sqrt(2 * math.pi)), ctx)
        if ctx.dropout:
            weights = F.dropout(weights.expand(v.size(0), -1, -1, -1), ctx.dropout)  # each sentence has its own dropout mask
        return weights.to(v.dtype) @ v

    def _exponents(self, ctx: AttentionContext, dtype: torch.dtype) -> Tensor:
        """Return the exponents of the densities of all keys, before keys are masked: [B or 1, H, T, S]."""
        offsets = self.offsets.values.to(dtype).unsqueeze(-1)
        means = self.options.ratio * ctx.queries.ids.to(dtype).unsqueeze(1) + offsets  # [B or 1, H, T]
        distances = (ctx.keys.ids[:, None, None, :] - means.unsqueeze(-1)) / self.options.deviation
        return -0.5 * distances**2


def _masked(weights: Tensor, ctx: AttentionContext) -> Tensor:
    """Set the weights of padding and of later keys to 0: [B or 1, H, T, S] -> same."""
    if ctx.key_padding is not None:
        weights = weights.masked_fill(ctx.key_padding[:, None, None, :], 0.0)
    return weights.tril(weights.size(-1) - weights.size(-2)) if ctx.causal else weights

"""Attention whose weights are fixed Gaussians around a neighbour."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option
from ...ops.precision import widen


class Gaussian(PositionMethod):
    """Weights that nothing learns: the density of a normal distribution around the word before, after, or itself.

    Equation: alpha_ts = N(s; gamma t + o_h, sigma), without softmax; You et al. (2020).
    Shapes: attend -> [B, H, T, D].
    Source: You, Sun and Iyyer (2020); fallcat/stupidNMT.
    Deviations: none; the authors' best recipe keeps learned attention to the source, as posenc_gaussian does.
    Cost: no parameters, and without queries and keys 2 d^2 + 2 d fewer a layer; one product of weights and values.
    """

    @dataclass(frozen=True)
    class Options(Options):
        deviation: float = option(1.0, "standard deviation sigma", minimum=1e-3)
        ratio: float = option(1.0, "cross only: gamma, source tokens for a target token", minimum=0.0)
        normalise: bool = option(False, "divide by the sum of the weights, which is 1 but at the ends of a sentence")

    card = MethodCard(
        name="gaussian",
        title="Hard-coded Gaussian attention",
        citation="""@inproceedings{you-etal-2020-hard,
  title = {Hard-Coded Gaussian Attention for Neural Machine Translation},
  author = {You, Weiqiu and Sun, Simeng and Iyyer, Mohit},
  booktitle = {ACL}, year = {2020}}""",
        equation="alpha_ts = N(s; gamma t + o_h, sigma)",
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder", "decoder", "cross"),
        parameters="0",
        stacks={"encoder": "sinusoidal+gaussian", "decoder": "sinusoidal+gaussian"},
    )
    projections = frozenset({"value"})

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if site != "cross" and options.ratio != 1.0:
            raise PositionError("gaussian: ratio is an option of cross-attention only")
        other = 0.0 if site == "decoder" else 1.0
        self.offsets = [-1.0 if head % 2 == 0 else other for head in range(dims.num_heads)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        weights = self.weights(ctx, widen(v).dtype)
        if ctx.key_padding is not None:
            weights = weights.masked_fill(ctx.key_padding[:, None, None, :], 0.0)
        if ctx.causal:
            weights = weights.tril(weights.size(-1) - weights.size(-2))
        if self.options.normalise:
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        return weights.to(v.dtype).expand(-1, v.size(1), -1, -1) @ v

    def weights(self, ctx: AttentionContext, dtype: torch.dtype) -> Tensor:
        """Densities before any mask: [B or 1, H, T, S]."""
        offsets = torch.tensor(self.offsets, device=ctx.keys.ids.device, dtype=dtype).unsqueeze(-1)
        means = self.options.ratio * ctx.queries.ids.to(dtype).unsqueeze(1) + offsets  # [B or 1, H, T]
        away = (ctx.keys.ids[:, None, None, :] - means.unsqueeze(-1)) / self.options.deviation
        return torch.exp(-0.5 * away**2) / (self.options.deviation * math.sqrt(2 * math.pi))

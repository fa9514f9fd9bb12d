"""A small network on sines and cosines of learned frequencies, added to the embeddings."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.precision import at_least_float32


class Fourier(PositionMethod):
    """Waves of the position at learned frequencies, passed through a small network and added to the embeddings.

    Equation: P[t] = W_2 GELU(W_1 f_t + b_1) + b_2 with f_t = F^-0.5 (cos(t w_1), ..., cos(t w_(F/2)), sin(t w_1), ...,
        sin(t w_(F/2))), for one coordinate and one group; Li et al. (2021).
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Li et al. (2021); willGuimont/learnable_fourier_positional_encoding.
    Deviations: the paper's sizes and the variance of its first frequencies could not be read: F = 768, 32 hidden units and gamma
        = 10 are those of the public code's example, and frequencies start at a deviation of 1 / gamma, where that code has
        1 / gamma^2; t is the position itself, in no unit of length.
    Cost: F/2 + F H + H + H d + d parameters per stack; the network runs once for every position, not for every word.
    Errors: PositionError for an odd number of features.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        features: int = option(768, "cosines and sines, F: twice the number of frequencies", minimum=2, maximum=65536)
        hidden: int = option(32, "hidden units, H", minimum=1, maximum=65536)
        gamma: float = option(10.0, "first frequencies are drawn with a deviation of 1 / gamma", minimum=0.001, maximum=1e6)

    card = MethodCard(
        name="fourier",
        title="Learnable Fourier features",
        citations=("li-etal-2021-learnable",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder", "decoder"),
        parameters="features // 2 + features * hidden + hidden + hidden * d + d",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.features % 2:
            raise PositionError(
                f"fourier: features={options.features} is odd. Expected an even number, for pairs of cosine and sine. "
                f"Use features={options.features + 1}."
            )
        self.frequencies = nn.Parameter(torch.randn(options.features // 2) / options.gamma)
        self.first = nn.Linear(options.features, options.hidden)
        self.second = nn.Linear(options.hidden, dims.embed_dim)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        angles = ctx.queries.ids.unsqueeze(-1) * at_least_float32(self.frequencies)  # [B or 1, T, F/2]
        waves = torch.cat([angles.cos(), angles.sin()], -1) * self.options.features**-0.5
        hidden = F.gelu(self.first(waves.to(self.first.weight.dtype)))
        return x + self.second(hidden).to(x.dtype)

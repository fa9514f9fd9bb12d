"""Outputs of a small network, added to the embeddings. The network reads sines and cosines with learned frequencies."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.precision import at_least_float32


class Fourier(PositionMethod):
    r"""Add the outputs of a small network to the embeddings. The network reads sines and cosines with learned frequencies.

    Equation: $P[t] = W_2 \operatorname{GELU}(W_1 f_t + b_1) + b_2$ with $f_t = F^{-0.5} (\cos(t w_1), \ldots, \cos(t w_{F/2}),
        \sin(t w_1), \ldots, \sin(t w_{F/2}))$. The frequencies $w_1$ to $w_{F/2}$ are learned. Li et al. (2021). The
        method of the paper also supports several coordinates per position, in several groups. Here, a position has one
        coordinate, and there is one group.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Li et al. (2021). Code: willGuimont/learnable_fourier_positional_encoding.
    Deviations:
        * The paper could not be read in full, so the authors' model sizes and initial variance are unknown.
        * $F = 768$, $H = 32$ hidden units and $\gamma = 10$ are the values of the example in the public code.
        * Initial frequencies have standard deviation $1 / \gamma$. The public code has $1 / \gamma^2$.
        * t is the position itself. The position is not divided by a length.
    Cost: F/2 + F H + H + H d + d parameters per stack. The network runs once per position, not once per token.
    Raises: PositionError for an odd number of features.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        features: int = option(768, "number F of cosines and sines, twice the number of frequencies", minimum=2, maximum=65536)
        hidden: int = option(32, "number H of hidden units", minimum=1, maximum=65536)
        gamma: float = option(10.0, "inverse standard deviation of the initial frequencies", minimum=0.001, maximum=1e6)

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

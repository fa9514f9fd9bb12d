"""Sinusoids times one learned number, added to the embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.precision import at_least_float32
from ...ops.sinusoids import SinusoidTable


class ScaledSinusoidal(PositionMethod):
    r"""Add sines and cosines of the position, multiplied by one learned scalar, to the embeddings.

    Equation: $P[t] = s (\sin(t w_0), \ldots, \sin(t w_{d/2-1}), \cos(t w_0), \ldots, \cos(t w_{d/2-1}))$ with $w_k =
        10000^{-2k/d}$ and $s$ learned.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Hua et al. (2022), whose code calls the method ScaledSin. Code: ScaledSinusoidalEmbedding of x-transformers.
    Deviations:
        * s starts at 1, because fairseq scales its embeddings by $\sqrt{d}$.
        * s starts at d^-0.5 in the authors' code, which does not scale the embeddings.
    Cost: 1 parameter per stack. A table of n rows, where n is the maximum length. Sinusoids of longer sentences are computed in
        each forward pass.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        start: float = option(1.0, "initial value of s")

    card = MethodCard(
        name="scaled_sinusoidal",
        title="Scaled sinusoids",
        citations=("hua-etal-2022-transformer",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        parameters="1",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.scale_of_sinusoids = nn.Parameter(torch.tensor([options.start]))
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "halves", "paper")

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + (at_least_float32(self.scale_of_sinusoids) * self.table(ctx.queries)).to(x.dtype)

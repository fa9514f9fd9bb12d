"""Sinusoids of a large multiple of the position, added to the embeddings."""

from dataclasses import dataclass

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class MaximumVariance(PositionMethod):
    r"""Add sinusoids of a large multiple of the position, so that neighbouring positions differ as much as distant positions.

    Equation: $P[t, 2m] = \sin(w_m k t)$, $P[t, 2m+1] = \cos(w_m k t)$, $w_m = 10000^{-2m/d}$. Li et al. (2019).
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Li et al. (2019). Survey, section 4.2.
    Deviations:
        * The method is reconstructed from the survey and the abstract. The paper could not be read.
        * The survey describes k > 1000 as suitable. The default is k=1000.
        * In the survey, the variance in the method's name is the variance of a vector's channels. In the abstract, it is the
          variance between neighbouring positions.
    Cost: no parameters. A table of n rows, where n is the maximum length. The table is computed from angles in float64.
        Sinusoids of longer sentences are computed in each forward pass.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        k: float = option(1000.0, "factor of the positions (1: the sinusoids of Vaswani et al., 2017)", minimum=0.0, maximum=1e6)

    card = MethodCard(
        name="mvpe",
        title="Maximum variance positions (mvPE)",
        citations=("li-etal-2019-augmented",),
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder", "decoder"),
        survey_parameters="0",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "interleaved", "paper", step=options.k)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)

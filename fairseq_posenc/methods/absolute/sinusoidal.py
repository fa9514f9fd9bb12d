"""Sinusoids added to the embeddings."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Sinusoidal(PositionMethod):
    r"""Add sines and cosines of the position to the embeddings.

    Equation: $P[t, 2k] = \sin(t w_k)$, $P[t, 2k+1] = \cos(t w_k)$, $w_k = 10000^{-2k/d}$. Vaswani et al. (2017), section 3.5.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Vaswani et al. (2017). Code: fairseq's SinusoidalPositionalEmbedding.
    Deviations:
        * The defaults are fairseq's values, so that fairseq's checkpoints load.
        * fairseq has all sines before all cosines, w_k = 10000^(-k/(d/2-1)), and padding_idx + 1 as the first position.
        * The options layout=interleaved,grid=paper,origin=zero implement the equation.
    Cost: no parameters. A table of n rows, where n is the maximum length. Sinusoids of longer sentences are computed in
        each forward pass.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        layout: Literal["halves", "interleaved"] = option(
            "halves", "all sines before all cosines, or each sine next to its cosine"
        )
        grid: Literal["fairseq", "paper"] = option(
            "fairseq", "frequencies of fairseq and tensor2tensor, or frequencies of the paper"
        )
        origin: Literal["fairseq", "zero"] = option(
            "fairseq", "number of the first position (padding_idx + 1 as in fairseq, or 0)"
        )
        base: float = option(10000.0, "base of the wavelengths, which range from 2 pi to 2 pi times the base", minimum=1.0)

    card = MethodCard(
        name="sinusoidal",
        title="Sinusoidal absolute positions",
        citations=("vaswani-etal-2017-attention",),
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        survey_parameters="0",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        origin = dims.padding_idx + 1 if options.origin == "fairseq" else 0
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, options.layout, options.grid, options.base, origin)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)

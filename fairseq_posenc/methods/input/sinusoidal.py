"""Sinusoids added to the embeddings."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.sinusoids import SinusoidTable


class Sinusoidal(PositionMethod):
    """Sines and cosines of the position, added to the embeddings.

    Equation: P[t, 2k] = sin(t w_k), P[t, 2k+1] = cos(t w_k), w_k = 10000^(-2k/d); Vaswani et al. (2017), section 3.5.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Vaswani et al. (2017); fairseq's SinusoidalPositionalEmbedding.
    Deviations: the defaults are fairseq's (halves, w_k = 10000^(-k/(d/2-1)), first position 2), not the formula's, so that
        checkpoints of stock fairseq load; layout=interleaved,grid=paper,origin=zero is the formula.
    Cost: no parameters; a table of max_positions rows.
    """

    @dataclass(frozen=True)
    class Options(Options):
        layout: Literal["halves", "interleaved"] = option("halves", "sines before cosines, or each beside the other")
        grid: Literal["fairseq", "paper"] = option("fairseq", "frequencies as in fairseq and tensor2tensor, or as in the paper")
        origin: Literal["fairseq", "zero"] = option("fairseq", "number of the first position: padding index + 1, or 0")
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="sinusoidal",
        title="Sinusoidal absolute positions",
        citation="""@inproceedings{vaswani-etal-2017-attention,
  title = {Attention Is All You Need},
  author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and Gomez, Aidan N. and
            Kaiser, Lukasz and Polosukhin, Illia},
  booktitle = {NeurIPS}, year = {2017}}""",
        equation="P[t, 2k] = sin(t w_k), P[t, 2k+1] = cos(t w_k), w_k = 10000^(-2k/d)",
        survey="4.2",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        beyond="runs",
        evidence="peer",
        sites=("encoder", "decoder"),
        deviations=("defaults are fairseq's layout, frequencies and first position, so that its checkpoints load",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        origin = dims.padding_idx + 1 if options.origin == "fairseq" else 0
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, options.layout, options.grid, options.base, origin)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)

"""A recurrent network at the input and relative vectors in attention."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ..attention.shaw import Shaw
from .rnn import RecurrentFrontEnd


class RRTransformer(PositionMethod):
    """The composition rnn+shaw under its own name.

    Equation: those of rnn and shaw; Neishi and Yoshinaga (2019), section 3.
    Shapes: embed [B, T, C] -> same, content_scores -> [B, H, T, S], content_values -> [B, H, T, D].
    Source: Neishi and Yoshinaga (2019); nem6ishi/conll19_relative_transformer.
    Deviations: those of rnn and shaw; the authors' decoder has 5 layers, ours as many as asked for.
    Cost: those of rnn and shaw together.
    """

    @dataclass(frozen=True)
    class Options(Options):
        bidirectional: bool = option(False, "encoder only: a second GRU from the right, and a linear layer from 2d to d")
        max_distance: int = option(16, "distance at which the tables of shaw are clipped", minimum=0)
        share: Literal["heads", "none", "layers"] = option("heads", "who has the tables of shaw in common")

        @property
        def parts(self) -> tuple:
            rnn = RecurrentFrontEnd.Options(bidirectional=self.bidirectional)
            return rnn, Shaw.Options(max_distance=self.max_distance, share=self.share)

    card = MethodCard(
        name="rr",
        title="RR-Transformer (GRU with Shaw et al.)",
        citation=RecurrentFrontEnd.card.citation,
        equation="x_t = GRU(sqrt(d) E[u_t], x_(t-1)) and shaw in every layer",
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        beyond="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="6 d^2 + 6 d + 2 (2k+1) d_h L",
        count=lambda options, dims, site: sum(
            part.card.count(own, dims, site) for part, own in zip((RecurrentFrontEnd, Shaw), options.parts)
        ),
        deviations=(*RecurrentFrontEnd.card.deviations, "the authors' decoder has 5 layers beside 6 of the encoder"),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        rnn, shaw = options.parts
        self.rnn = RecurrentFrontEnd(rnn, dims, site)
        self.shaw = Shaw(shaw, dims, site)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return self.rnn.embed(x, tokens, ctx)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return self.shaw.content_scores(q, k, ctx)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        return self.shaw.content_values(probs, v, ctx)

"""A recurrent network at the input and relative vectors in attention."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ..relative.shaw import Shaw
from .rnn import RecurrentFrontEnd


class RRTransformer(PositionMethod):
    """A GRU in place of the embeddings together with the relative vectors of Shaw et al.: rnn+shaw under its own name.

    Equation: x_t = GRU(sqrt(d) E[u_t], x_(t-1)), and in self-attention A_ts = q_t . (k_s + a_c) / sqrt(d_h) and
        o_t = sum_s alpha_ts (v_s + b_c), c = clip(s-t, k); Neishi and Yoshinaga (2019), section 3.
    Shapes: embed [B, T, C] -> [B, T, C]; content_scores -> [B, H, T, S]; content_values -> [B, H, T, D].
    Source: Neishi and Yoshinaga (2019); nem6ishi/conll19_relative_transformer.
    Deviations: dropout follows the GRU as it follows all embeddings in fairseq, where the authors' precedes it; embeddings
        keep the factor sqrt(d), because fairseq draws them with variance 1/d and the authors with variance 1; the authors'
        decoder has 5 layers beside 6 of the encoder, ours as many as requested; torch's GRU has two bias vectors, as the
        authors', where the survey counts one.
    Cost: 6 d^2 + 6 d parameters per stack, bidirectional 14 d^2 + 13 d, and 2 (2k + 1) d_h for every table; T steps of the GRU
        one after the other, and one product of queries and of weights with the vectors in every layer.
    Errors: PositionError for bidirectional=true in a causal decoder, and for positions that are not integers.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        bidirectional: bool = option(False, "encoder only: a second GRU reads from right to left")
        max_distance: int = option(
            16, "largest distance k with vectors of its own; farther words share those of k", minimum=0, maximum=65536
        )
        share: Literal["heads", "none", "layers"] = option("heads", "share one table across heads or across layers")

        @property
        def parts(self) -> tuple:
            rnn = RecurrentFrontEnd.Options(bidirectional=self.bidirectional)
            return rnn, Shaw.Options(max_distance=self.max_distance, share=self.share)

    card = MethodCard(
        name="rr",
        title="RR-Transformer (GRU with Shaw et al.)",
        citations=("neishi-yoshinaga-2019-relation",),
        survey="4.1.2",
        reference="relative",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="(14 * d**2 + 13 * d if bidirectional else 6 * d**2 + 6 * d) + 2 * tables * (2 * max_distance + 1) * d_h",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        rnn, shaw = options.parts
        self.rnn = RecurrentFrontEnd(rnn, dims)
        self.shaw = Shaw(shaw, dims)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return self.rnn.embed(x, tokens, ctx)

    def content_scores(self, q: Tensor, k: Tensor, ctx: AttentionContext) -> Tensor:
        return self.shaw.content_scores(q, k, ctx)

    def content_values(self, probs: Tensor, v: Tensor, ctx: AttentionContext) -> Tensor:
        return self.shaw.content_values(probs, v, ctx)

"""A recurrent network at the input, and relative vectors in attention."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ..relative.shaw import Shaw
from .rnn import RecurrentFrontEnd


class RRTransformer(PositionMethod):
    r"""Replace the embeddings by GRU states and add the relative vectors of Shaw et al. to attention (equal to rnn+shaw).

    Equation: $x_t = \operatorname{GRU}(\sqrt{d} E[u_t], x_{t-1})$ with $E$ the token embeddings. In self-attention, $A_{ts} = q_t
        \cdot (k_s + a_c) / \sqrt{d_h}$ and $o_t = \sum_s \alpha_{ts} (v_s + b_c)$, $c = \operatorname{clip}(s-t, k)$, with
        learned vectors $a_c$ and $b_c$ and attention weights $\alpha_{ts}$. Neishi and Yoshinaga (2019), section 3.
    Shapes: embed [B, T, C] -> [B, T, C]. content_scores -> [B, H, T, S]. content_values -> [B, H, T, D].
    Source: Neishi and Yoshinaga (2019). Code: nem6ishi/conll19_relative_transformer.
    Deviations:
        * Dropout follows the GRU, as it follows all embeddings in fairseq. The authors' dropout precedes the GRU.
        * Embeddings keep the factor $\sqrt{d}$. fairseq draws embeddings with variance 1/d. The authors' code draws embeddings
          with variance 1.
        * torch's GRU and the authors' GRU have two bias vectors. The survey counts one bias vector.
        * The authors' model has 6 encoder layers and 5 decoder layers. In this project, the user sets both numbers.
    Cost: 6 d^2 + 6 d parameters per stack, or 14 d^2 + 13 d with bidirectional=true. If heads share tables, each layer has
        2 (2k + 1) d_h additional parameters. The GRU takes T sequential steps. Each layer computes one product of the queries
        with the vectors, and one product of the attention weights with the vectors.
    Raises: PositionError for bidirectional=true in a causal decoder, and for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        bidirectional: bool = option(False, "second GRU from right to left (encoder only)")
        max_distance: int = option(
            16,
            "largest distance k with separate vectors, in tokens (larger distances share the vectors of k)",
            minimum=0,
            maximum=65536,
        )
        share: Literal["heads", "none", "layers"] = option("heads", "sharing of the tables: across heads, across layers, or none")

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

"""A learned vector for every position, added to the embeddings."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod
from ...ops.distances import require_integer


class Learned(PositionMethod):
    r"""Add a learned vector for each position to the embeddings.

    Equation: $x_t = \sqrt{d} E[u_t] + P[t]$ with $E$ the token embeddings and $P \in \mathbb{R}^{n \times d}$ learned.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Gehring et al. (2017). Survey, section 4.1. Code: fairseq's LearnedPositionalEmbedding.
    Deviations:
        * The table has padding_idx + 1 rows before position 0, as in fairseq, so that fairseq's checkpoints load.
    Cost: (n + padding_idx + 1) d parameters per stack.
    Raises: PositionError for a sentence of more than n positions, and for non-integer positions.
    """

    card = MethodCard(
        name="learned",
        title="Learned absolute positions",
        citations=("gehring-etal-2017-convolutional",),
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="error",
        evidence="peer",
        sites=("encoder", "decoder"),
        parameters="(n + padding_idx + 1) * d",
        survey_parameters="n d",
    )
    position_type = "integer"

    def __init__(self, options: MethodOptions, dims: Dims):
        super().__init__(options, dims)
        self.origin = dims.padding_idx + 1
        self.weight = nn.Parameter(torch.empty(dims.max_positions + self.origin, dims.embed_dim))
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)
        nn.init.zeros_(self.weight[dims.padding_idx])

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + F.embedding(require_integer(ctx.queries.ids) + self.origin, self.weight)

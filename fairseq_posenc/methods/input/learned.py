"""A learned vector for every position, added to the embeddings."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, PositionMethod
from ...ops.distances import whole


class Learned(PositionMethod):
    """A learned vector for every position, added to the embeddings.

    Equation: x_t = sqrt(d) E[u_t] + P[t], P in R^(n x d).
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Gehring et al. (2017); survey, section 4.1; fairseq's LearnedPositionalEmbedding.
    Deviations: the table has padding_idx + 1 further rows before position 0, as fairseq's, so that its checkpoints load.
    Cost: (n + padding_idx + 1) d parameters a stack.
    """

    card = MethodCard(
        name="learned",
        title="Learned absolute positions",
        citation="""@inproceedings{gehring-etal-2017-convolutional,
  title = {Convolutional Sequence to Sequence Learning},
  author = {Gehring, Jonas and Auli, Michael and Grangier, David and Yarats, Denis and Dauphin, Yann N.},
  booktitle = {ICML}, year = {2017}}""",
        equation="x_t = sqrt(d) E[u_t] + P[t]",
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        beyond="error",
        evidence="peer",
        sites=("encoder", "decoder"),
        parameters="(n + padding_idx + 1) d",
        count=lambda options, dims, site: (dims.max_positions + dims.padding_idx + 1) * dims.embed_dim,
        survey_parameters="n d",
        deviations=("fairseq's table has padding_idx + 1 rows before the first position",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        self.origin = dims.padding_idx + 1
        self.weight = nn.Parameter(torch.empty(dims.max_positions + self.origin, dims.embed_dim))
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)
        nn.init.zeros_(self.weight[dims.padding_idx])

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + F.embedding(whole(ctx.queries.ids) + self.origin, self.weight)

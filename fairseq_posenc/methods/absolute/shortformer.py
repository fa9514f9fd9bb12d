"""Sinusoids added to the inputs of queries and keys in every layer: position-infused attention."""

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, Positions, Projection, acts_on
from ...ops.sinusoids import SinusoidTable


class Shortformer(PositionMethod):
    """Sinusoids added to the inputs of queries and keys in every layer; values have no positions.

    Equation: q_t = W_q (x_t + P[t]), k_s = W_k (x_s + P[s]), v_s = W_v x_s, P the sinusoids of fairseq; Press et al. (2021),
        section 5.
    Shapes: project_input of queries and keys [B, T, C] -> [B, T, C].
    Source: Press, Smith and Lewis (2021); ofirpress/shortformer.
    Deviations: published for a language model; encoder and cross-attention are our extension, the latter with P of the
        target position in queries and of the source position in keys; positions count from the start of the sentence, for
        the cache of the previous segment is not part of the method.
    Cost: no parameters; one addition to queries and one to keys per layer.
    """

    card = MethodCard(
        name="shortformer",
        title="Position-infused attention (Shortformer)",
        citations=("press-etal-2021-shortformer",),
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("decoder",),
        extended_sites=("encoder", "cross"),
    )

    def __init__(self, options: MethodOptions, dims: Dims):
        super().__init__(options, dims)
        rows = max(dims.max_positions, dims.max_key_positions)
        self.table = SinusoidTable(rows, dims.embed_dim, "halves", "fairseq", origin=dims.padding_idx + 1)

    @acts_on("query", "key")
    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return x + self.table(at).to(x.dtype)

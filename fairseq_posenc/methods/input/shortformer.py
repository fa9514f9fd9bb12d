"""Sinusoids added to queries and keys, not to values: position-infused attention."""

from torch import Tensor

from ...contract import AttentionContext, MethodCard, PositionMethod, Positions
from ...ops.sinusoids import SinusoidTable


class Shortformer(PositionMethod):
    """Sinusoids added to what queries and keys are made from in every layer; values stay free of positions.

    Equation: q_t = W_q (x_t + P[t]), k_s = W_k (x_s + P[s]), v_s = W_v x_s; Press et al. (2021), section 5.
    Shapes: query_input, key_input [B, T, C] -> [B, T, C].
    Source: Press, Smith and Lewis (2021); ofirpress/shortformer.
    Deviations: cross-attention is ours (P of the target position in queries, of the source position in keys).
    Cost: no parameters; one addition to queries and one to keys a layer.
    """

    card = MethodCard(
        name="shortformer",
        title="Position-infused attention (Shortformer)",
        citation="""@inproceedings{press-etal-2021-shortformer,
  title = {Shortformer: Better Language Modeling using Shorter Inputs},
  author = {Press, Ofir and Smith, Noah A. and Lewis, Mike},
  booktitle = {ACL}, year = {2021}}""",
        equation="q_t = W_q (x_t + P[t]), k_s = W_k (x_s + P[s]), v_s = W_v x_s",
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("decoder",),
        our_sites=("encoder", "cross"),
        deviations=("published for a language model; encoder and cross-attention are our extension",),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        rows = max(dims.max_positions, dims.max_key_positions)
        self.table = SinusoidTable(rows, dims.embed_dim, "halves", "fairseq", origin=dims.padding_idx + 1)

    def query_input(self, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return x + self.table(at).to(x.dtype)

    key_input = query_input

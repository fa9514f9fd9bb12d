"""Sinusoids added to the inputs of queries and keys in every layer: position-infused attention."""

from torch import Tensor

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionMethod,
    Positions,
    Projection,
    acts_on,
)
from ...ops.sinusoids import SinusoidTable


class Shortformer(PositionMethod):
    """Add sinusoids to the inputs of queries and keys in every layer, but not to the inputs of values.

    Equation: $q_t = W_q (x_t + P[t])$, $k_s = W_k (x_s + P[s])$, $v_s = W_v x_s$ with $P$ the sinusoids of fairseq. Press et al.
        (2021), section 5.
    Shapes: project_input of queries and keys [B, T, C] -> [B, T, C].
    Source: Press, Smith and Lewis (2021). Code: ofirpress/shortformer.
    Deviations:
        * The authors describe a language model. Encoder and cross-attention are extensions of this project.
        * In cross-attention, queries use P of the target position, and keys use P of the source position.
        * Positions count from the start of the sentence. The authors' cache of the previous segment of text is not implemented.
    Cost: no parameters. Each layer adds sinusoids to the inputs of queries, and to the inputs of keys.
    Raises: PositionError for keys and queries of different widths.
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
        survey_parameters="0",
    )

    def __init__(self, options: MethodOptions, dims: Dims):
        super().__init__(options, dims)
        dims.require_equal_widths("shortformer")
        rows = max(dims.max_positions, dims.max_key_positions)
        self.table = SinusoidTable(rows, dims.embed_dim, "halves", "fairseq", origin=dims.padding_idx + 1)

    @acts_on("query", "key")
    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return x + self.table(at).to(x.dtype)

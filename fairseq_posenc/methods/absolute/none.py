"""No position information."""

from ...core import MethodCard, PositionMethod


class NoPosition(PositionMethod):
    """No position information: the encoder is a bag of tokens, and only the causal mask of the decoder depends on order.

    Equation: x_t = sqrt(d) E[u_t].
    Shapes: none.
    Source: Haviv et al. (2022); survey, section 2.3; fairseq's --no-token-positional-embeddings.
    Deviations: none.
    Cost: no parameters, no operations.
    """

    card = MethodCard(
        name="none",
        title="No position information",
        citations=("haviv-etal-2022-transformer",),
        survey="2.3",
        reference="none",
        injection="none",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="peer",
        sites=("encoder", "decoder", "cross"),
        default_specs={"encoder": "none", "decoder": "none"},
    )

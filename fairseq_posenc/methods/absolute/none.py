"""No position information."""

from ...core import MethodCard, PositionMethod


class NoPosition(PositionMethod):
    r"""Add no position information: the encoder is a bag of tokens, and the decoder infers order only from its causal mask.

    Equation: $x_t = \sqrt{d} E[u_t]$ with $E$ the token embeddings.
    Shapes: none.
    Source: Haviv et al. (2022). Survey, section 2.3. Code: fairseq's --no-token-positional-embeddings.
    Deviations: none.
    Cost: no parameters and no operations.
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

"""No position information."""

from ...contract import MethodCard, PositionMethod


class NoPosition(PositionMethod):
    """No position information: the encoder is a bag of tokens, the decoder knows order by its causal mask alone.

    Equation: x_t = sqrt(d) E[u_t].
    Shapes: none.
    Source: Haviv et al. (2022); survey, section 2.3.
    Deviations: none.
    Cost: nothing.
    """

    card = MethodCard(
        name="none",
        title="No position information",
        citation="""@inproceedings{haviv-etal-2022-transformer,
  title = {Transformer Language Models without Positional Encodings Still Learn Positional Information},
  author = {Haviv, Adi and Ram, Ori and Press, Ofir and Izsak, Peter and Levy, Omer},
  booktitle = {Findings of EMNLP}, year = {2022}}""",
        equation="x_t = sqrt(d) E[u_t]",
        survey="2.3",
        reference="none",
        injection="none",
        learnable=False,
        recurring=False,
        beyond="runs",
        evidence="peer",
        sites=("encoder", "decoder", "cross"),
        stacks={"encoder": "none", "decoder": "none"},
    )

"""Attention to a window around every query."""

from dataclasses import dataclass

from torch import Tensor

from ...contract import AttentionContext, MethodCard, Options, PositionMethod, option
from ...ops.distances import distances


class Window(PositionMethod):
    """A query sees keys within a window; positions within it must come from another method.

    Equation: M_ts = 0 if |s-t| <= g w/2 and g divides s - t, else -inf; Beltagy et al. (2020).
    Shapes: mask -> bool [B or 1, 1, T, S].
    Source: Beltagy, Peters and Cohan (2020); Hugging Face's Longformer.
    Deviations: no global tokens, which have projections of their own; in the decoder the left half of the window remains.
    Cost: no parameters; as full attention, for nothing is left out of the product.
    """

    @dataclass(frozen=True)
    class Options(Options):
        width: int = option(32, "width w of the window, both sides together", minimum=0)
        dilation: int = option(1, "gap g between the keys that are seen", minimum=1)

    card = MethodCard(
        name="window",
        title="Sliding window (Longformer)",
        citation="""@article{beltagy-etal-2020-longformer,
  title = {Longformer: The Long-Document Transformer},
  author = {Beltagy, Iz and Peters, Matthew E. and Cohan, Arman},
  journal = {arXiv:2004.05150}, year = {2020}}""",
        equation="M_ts = 0 if |s-t| <= g w/2 and g divides s - t, else -inf",
        survey="not in its Table 1",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        beyond="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="0",
        deviations=(
            "no global tokens",
            "blind to direction by itself; posenc_window has learned positions beside it, as Longformer does",
            "a window of 32, where Longformer's 512 would cover whole sentences",
        ),
        stacks={"encoder": "learned+window", "decoder": "learned+window"},
    )

    def mask(self, ctx: AttentionContext) -> Tensor:
        away = distances(ctx.queries, ctx.keys).abs().unsqueeze(1)  # [B or 1, 1, T, S]
        return (away <= self.options.width // 2 * self.options.dilation) & (away % self.options.dilation == 0)

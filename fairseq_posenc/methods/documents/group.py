"""Attention within a sentence of a document."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionMethod, option
from ...ops.segments import Separator, before, opened


class Group(PositionMethod):
    r"""Restrict each query to the keys of its sentence. In cross-attention, restrict the query to the source
    sentence that it translates.

    Equation: $M_{ts} = 0$ if $\operatorname{tag}(t) = \operatorname{tag}(s)$, else $-\infty$. Bao et al. (2021). In the encoder,
        $\operatorname{tag}(t)$ is the number of separators before token $t$. In the decoder, it is the number of separators up
        to token $t$. Cross-attention compares the number of separators up to the query with the number of separators before the
        key. The number of separators up to the query is limited to the number of separators in the source.
    Shapes: mask -> bool [B, 1, T, S].
    Source: Bao et al. (2021). Code: baoguangsheng/g-transformer. Only the code was read, not the paper's text.
    Deviations:
        * One separator divides two sentences, as in D2DToolkits. The authors write <s> and </s> around each sentence.
        * The decoder counts a separator as the beginning of the next sentence. At the separator, the decoder predicts the first
          token of this sentence.
        * Target sentences beyond the number of source sentences attend to the last source sentence. In the authors' code, such
          sentences have no key, and their result is NaN.
        * The authors train from scratch with noise: words of the input are masked in the first epochs. This project has no such
          option. The authors have higher scores if training starts from a model of sentences. For such a start, use
          posenc checkpoint start-from.
        * The first token of the authors' decoder is the language, and attends to all source tokens. Here, the first token is
          </s>, and attends to the first sentence.
        * The authors have global attention in the last two layers. The options --encoder-global-layers, --decoder-global-layers
          and --cross-global-layers add it. The architecture posenc_g_transformer sets these options.
        * For a document of one sentence, D2DToolkits leaves out the global attention. Here, the gate combines both attentions.
    Cost: no parameters. The method takes the time and memory of full attention, because the product of all queries and all
        keys is computed.
    Raises: PositionError for a dictionary without the separator.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        separator: str = option("<sep>", "token that ends a sentence, as in the dictionary")

    card = MethodCard(
        name="group",
        title="Group attention (G-Transformer)",
        citations=("bao-etal-2021-g",),
        survey="not in the survey",
        reference="relative",
        injection="MAM",
        learnable=False,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder", "cross"),
        default_specs={"encoder": "sinusoidal+group", "decoder": "sinusoidal+group", "cross": "group"},
        documents=True,
        local=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.separator = Separator(self.card.name, options.separator, dims)

    def mask(self, ctx: AttentionContext) -> Tensor:
        count = opened if self.dims.causal else before
        queries = self.separator.of_queries(ctx, opened if self.dims.cross else count)  # [B, T]
        keys = self.separator.of_keys(ctx, before if self.dims.cross else count)  # [B, S]
        if queries is None or keys is None:
            shape = (1, 1, ctx.queries.ids.size(1), ctx.keys.ids.size(1))
            return torch.ones(shape, dtype=torch.bool, device=ctx.keys.ids.device)
        sentences = self.separator.sentences(ctx)
        if self.dims.cross and sentences is not None:
            queries = queries.minimum(sentences - 1)
        return (queries.unsqueeze(2) == keys.unsqueeze(1)).unsqueeze(1)

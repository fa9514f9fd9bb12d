"""Positions that increase by a shift at every sentence boundary of a document."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.segments import Separator
from ...ops.sinusoids import SinusoidTable


class SegmentShift(PositionMethod):
    r"""Shift the positions of each sentence of a document, so that the model can distinguish the sentences.

    Equation: $p(t) = t + s \operatorname{seg}(t)$, with $\operatorname{seg}(t)$ the number of separators before token $t$. The
        largest value of $\operatorname{seg}(t)$ is `segments` minus 1. Lupo, Dinarelli and Besacier (2022). `mean=true`: $s$ is
        the number of source tokens of a document divided by the number of its source sentences, rounded up. `</s>` and
        separators are source tokens here. fairseq's sinusoids at $p(t)$ are added to the embeddings.
    Shapes: positions [B, T] -> same. embed [B, T, C] -> [B, T, C].
    Source: Lupo, Dinarelli and Besacier (2022). Code: lorelupo/focused-concat. Only the code was read, not the text of the
        papers.
    Deviations:
        * A separator token marks the end of a sentence. The authors' task stores the ends of sentences separately.
        * The shift changes the positions of all methods of the spec.
        * Decoding uses the same positions as training. In the authors' code, incremental decoding uses other positions.
        * With mean=true, target sentences after the last source sentence have the shift of the last source sentence.
        * With a fixed shift, the shift of target sentences after the last source sentence grows up to `segments`. In the
          authors' incremental decoding, these sentences have the shift of the last source sentence.
        * The authors' training loss reduces the weight of context sentences. This loss is not included.
    Cost: no parameters. One cumulative sum, and sinusoids of the positions of each document.
    Raises: PositionError for a dictionary without the separator, and for shift together with mean=true.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        shift: int = option(8, "number s of positions between two sentences", minimum=0, maximum=1000000)
        mean: bool = option(False, "shift by the mean length of the source sentences of a document")
        separator: str = option("<sep>", "token that ends a sentence, as in the dictionary")
        segments: int = option(
            8, "number of sentences with different shifts (later sentences have the last shift)", minimum=2, maximum=1024
        )
        vectors: Literal["sinusoidal", "none"] = option(
            "sinusoidal", "sinusoids added to the embeddings, or none (only the other methods of the spec read the positions)"
        )

        def __post_init__(self) -> None:
            if self.mean and self.shift != type(self).shift:
                raise PositionError("segment_shift: shift has no effect with mean=true. Expected one of them. Leave one out.")

    card = MethodCard(
        name="segment_shift",
        title="Sentence-shifted positions",
        citations=("lupo-etal-2022-focused", "lupo-etal-2023-encoding"),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        documents=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.separator = Separator(self.card.name, options.separator, dims)
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, "halves", "fairseq", origin=dims.padding_idx + 1)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"embed"} if self.options.vectors == "none" else set())

    def reach(self, positions: int) -> float:
        options = self.options
        if options.mean:
            return 2 * max(positions, self.dims.max_key_positions) + options.segments
        return positions + options.shift * (options.segments - 1)

    def positions(self, ids: Tensor, ctx: AttentionContext) -> Tensor:
        sentence = self.separator.of_keys(ctx)  # [B, T]
        if sentence is None:
            return ids
        sentence = sentence.clamp(max=self.options.segments - 1)
        if not self.options.mean:
            return ids + self.options.shift * sentence
        sentences = self.separator.sentences(ctx)
        if sentences is None or ctx.source is None:
            return ids
        words = ctx.source.ne(self.dims.padding_idx).sum(1, keepdim=True)  # [B, 1]
        mean = (words + sentences - 1) // sentences  # the division rounds up
        return ids + mean * sentence.minimum(sentences - 1)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return x + self.table(ctx.queries).to(x.dtype)

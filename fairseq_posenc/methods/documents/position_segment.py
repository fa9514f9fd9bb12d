"""One vector that contains the position of a token and the number of its sentence."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.segments import Separator, labels, refuse_width, sentence_vectors
from ...ops.sinusoids import Sinusoids, SinusoidTable


class PositionSegment(PositionMethod):
    r"""Add sinusoids of the position in some channels, and a vector of the sentence in the other channels.

    Equation: $x_t = \sqrt{d} E[u_t] + [P_{d-w}[t]; E_{s,w}[\operatorname{lab}(t)]]$. $P_{d-w}$ are fairseq's sinusoids of $d - w$
        channels. $E_{s,w}$ are vectors of $w$ channels (option `vectors`). `count=start`: $\operatorname{lab}(t)$ is the number
        of separators before $t$, plus 1. `count=end`: $\operatorname{lab}(t)$ is the number of source sentences minus the
        number of separators before $t$. Lupo, Dinarelli and Besacier (2023).
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Lupo, Dinarelli and Besacier (2023). Code: lorelupo/focused-concat. Only the code was read, not the paper's text.
    Deviations:
        * The width w of the paper is unverified, because the published scripts do not set this width. The default is d/2.
        * The authors count from the last sentence (count=end). In their code, the first input token of the decoder has label 1.
        * Learned vectors are trained. The authors' code reads a copy that training does not change.
        * With vectors=learned, labels beyond the table use the last vector. With vectors=onehot, labels above w use the last
          vector. Labels below 1 are replaced by 1.
    Cost: no parameters. With vectors=learned, each stack has `segments` vectors of w parameters.
    Raises: PositionError for a dictionary without the separator. PositionError for vectors=sinusoidal if w is odd or
        less than 4. PositionError if no channel remains for positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        width: int | None = option(
            None, "number w of channels of the sentence vector (none: half of the model width)", minimum=1, maximum=65536
        )
        vectors: Literal["sinusoidal", "learned", "onehot"] = option("sinusoidal", "type of the sentence vectors")
        count: Literal["start", "end"] = option(
            "end", "start of the sentence count: first sentence, or last sentence of the source"
        )
        separator: str = option("<sep>", "token that ends a sentence, as in the dictionary")
        segments: int = option(8, "number of learned vectors, for vectors=learned", minimum=2, maximum=1024)

        def __post_init__(self) -> None:
            if self.vectors != "learned" and self.segments != type(self).segments:
                raise PositionError(
                    "position_segment: segments has no effect without vectors=learned. Expected vectors=learned. "
                    "Leave segments out."
                )

    card = MethodCard(
        name="position_segment",
        title="Position-sentence vectors (PSE)",
        citations=("lupo-etal-2023-encoding",),
        survey="not in the survey",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="segments * (width or d // 2) if vectors == 'learned' else 0",
        documents=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.separator = Separator(self.card.name, options.separator, dims)
        self.width = options.width or dims.embed_dim // 2
        rest = dims.embed_dim - self.width
        if rest < 1:
            raise PositionError(
                f"position_segment: width={self.width} leaves none of {dims.embed_dim} channels for positions. "
                f"Expected at most {dims.embed_dim - 1}. Choose a smaller width."
            )
        refuse_width(self.card.name, options.vectors, self.width)
        self.positions_of_words = SinusoidTable(dims.max_positions, rest, "halves", "fairseq", origin=dims.padding_idx + 1)
        self.waves = Sinusoids(self.width, "halves", "fairseq") if options.vectors == "sinusoidal" else None
        self.table = None
        if options.vectors == "learned":
            self.table = nn.Parameter(torch.empty(options.segments, self.width))
            nn.init.normal_(self.table, std=dims.embed_dim**-0.5)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        label = labels(self.separator, ctx, self.options.count)
        label = torch.ones_like(tokens) if label is None else label  # [B, T]
        words = self.positions_of_words(ctx.queries).expand(x.size(0), -1, -1)  # [B, T, C - w]
        sentence = sentence_vectors(self.waves or self.table, label, self.width)  # [B, T, w]
        return x + torch.cat([words.to(x.dtype), sentence.to(x.dtype)], -1)

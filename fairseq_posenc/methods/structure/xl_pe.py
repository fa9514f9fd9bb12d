"""Cross-lingual positions: the place of a word in the word order of the other language."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    Sentence,
    SideInput,
    option,
)
from ...ops.sinusoids import SinusoidTable


class CrossLingualPositions(PositionMethod):
    r"""Add sinusoids of a word's position in the sentence and of its position in the word order of the other language.

    Equation: $X = U + P + P'$, with $P$ the sinusoids of the positions, and $P'$ the sinusoids of the positions in the other
        order. With `fuse=tanh` (InXL), $X = U + \tanh(P W_1 + P' W_2 + b)$. With `fuse=heads` (HeadXL), $X = U + P$, and the
        first heads of the first layer compute queries and keys from $U + P'$. Ding et al. (2020), section 3.
    Shapes: embed [B, S, C] -> [B, S, C]. rotate [B, H, S, D] -> [B, H, S, D].
    Source: Ding et al. (2020), abstract. Survey, section 4.5.
    Deviations:
        * UNVERIFIED: the equations of fuse=tanh and fuse=heads, and the number of heads that read P'.
        * fuse=heads adds (P' - P) W to projected queries and keys. This equals projecting U + P' if no layer norm precedes
          the first attention.
        * In the other order, tokens of one word stay together, and </s> is last.
        * The option sinusoids selects the sinusoids of fairseq or of Vaswani et al. (2017). Positions count from
          padding_idx + 1, as in `sinusoidal`.
    Cost: no parameters, or 2 d^2 + d with fuse=tanh.
    Raises: PositionError for heads=K without fuse=heads. PositionError if K is larger than the number of heads of the model.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        fuse: Literal["sum", "tanh", "heads"] = option(
            "sum", "combination of both positions: sum, tanh of a linear map, or different heads"
        )
        heads: int = option(0, "number of heads with the other order, for fuse=heads (0: half of the heads)", minimum=0)
        sinusoids: Literal["fairseq", "paper"] = option(
            "fairseq", "all sines before all cosines at fairseq's frequencies, or interleaved at those of Vaswani et al."
        )

    card = MethodCard(
        name="xl_pe",
        title="Cross-lingual positions",
        citations=("ding-etal-2020-self",),
        survey="4.5",
        reference="absolute",
        injection="APE",
        learnable=False,
        recurring=False,
        extrapolation="runs",
        evidence="reconstruction",
        sites=("encoder",),
        parameters="2 * d**2 + d if fuse == 'tanh' else 0",
        side_inputs=(SideInput("xl_place", "B S", files=("order",)),),
        default_specs={"decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        slot = np.empty_like(sentence.order)
        slot[sentence.order] = np.arange(len(slot))  # position of every word in the other order
        place = np.empty_like(sentence.words)
        place[np.argsort(slot[sentence.words], kind="stable")] = np.arange(len(place))  # tokens of a word stay together
        return {"xl_place": place}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.heads > dims.num_heads or (options.heads and options.fuse != "heads"):
            raise PositionError(
                f"xl_pe: heads={options.heads} is not allowed. Expected fuse=heads and at most {dims.num_heads}, the number "
                "of heads of the model. Change heads or fuse."
            )
        self.heads = options.heads or dims.num_heads // 2
        form = ("halves", "fairseq") if options.sinusoids == "fairseq" else ("interleaved", "paper")
        self.table = SinusoidTable(dims.max_positions, dims.embed_dim, *form, origin=dims.padding_idx + 1)
        if options.fuse == "tanh":
            self.of_place = nn.Linear(dims.embed_dim, dims.embed_dim)
            self.of_other = nn.Linear(dims.embed_dim, dims.embed_dim, bias=False)
            for layer in (self.of_place, self.of_other):
                nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(self.of_place.bias)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks if self.options.fuse == "heads" else super().hooks - {"rotate"}

    def _vectors(self, at: Positions, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
        """Return P and P': [B or 1, S, C] and [B, S, C], in float32."""
        return self.table(at), self.table.of_words(ctx.side["xl_place"])

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        here, other = (vectors.to(x.dtype) for vectors in self._vectors(ctx.queries, ctx))
        if self.options.fuse == "heads":
            return x + here
        if self.options.fuse == "tanh":
            return x + torch.tanh(self.of_place(here) + self.of_other(other))
        return x + here + other

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Replace P by P' in the first heads, by adding (P' - P) W."""
        if ctx.layer > 0:
            return x
        here, other = self._vectors(at, ctx)
        change = (other - here).to(x.dtype)
        added = ctx.project(which, change) - ctx.project(which, torch.zeros_like(change[:1, :1]))  # without the bias
        return torch.cat([x[:, : self.heads] + added[:, : self.heads], x[:, self.heads :]], 1)

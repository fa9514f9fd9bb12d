"""Positions on two levels: position of a token in its sentence, and number of its sentence in the document."""

from dataclasses import dataclass, replace

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
    option,
)
from ...ops.constants import Constants
from ...ops.distances import require_integer
from ...ops.rotation import Waves, every_channel, rotate
from ...ops.segments import Separator, inside, opened
from ...ops.sinusoids import Sinusoids
from ..bias.alibi import slopes


@dataclass(frozen=True)
class BilevelOptions(MethodOptions):
    """Options of bipe_rope and bipe_alibi."""

    separator: str = option("<sep>", "token that ends a sentence, as in the dictionary")
    longest: int = option(
        256, "number N of position vectors in a sentence (later tokens share the last vector)", minimum=1, maximum=65536
    )


class _Bilevel(PositionMethod):
    """Implement learned positions in the sentence, and the sentence numbers of queries, for bipe_rope and bipe_alibi."""

    counts_tokens = content_dependent = True

    def __init__(self, options: BilevelOptions, dims: Dims):
        super().__init__(options, dims)
        self.separator = Separator(self.card.name, options.separator, dims)
        self.weight = None
        if dims.cross and options.longest != BilevelOptions.longest:
            raise PositionError(
                f"{self.card.name}: longest has no effect in cross-attention, which has no embeddings. "
                "Expected longest at encoder and decoder. Leave it out."
            )
        if not dims.cross:
            self.weight = nn.Parameter(torch.empty(options.longest, dims.embed_dim))
            nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - ({"embed"} if self.dims.cross else set())

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        column = self.separator.of_queries(ctx, inside)  # [B, T]
        if column is None:  # the context contains no tokens. The text then counts as one sentence
            column = require_integer(ctx.queries.ids)
        return x + nn.functional.embedding(column.clamp(max=self.options.longest - 1), self.get_parameter("weight"))

    def of_queries(self, ctx: AttentionContext) -> Tensor | None:
        """Return the sentence number of each query, [B, T].

        In cross-attention, the sentence number is at most the number of the last source sentence.
        """
        if not self.dims.cross:
            return self.separator.of_queries(ctx)
        number, sentences = self.separator.of_queries(ctx, opened), self.separator.sentences(ctx)
        return number if number is None or sentences is None else number.minimum(sentences - 1)


class BipeRope(_Bilevel):
    r"""Add a learned vector of the position in the sentence, and rotate queries and keys by the number of the sentence.

    Equation: $x_t = \sqrt{d} E[u_t] + Z[\min(\operatorname{intra}(t), N - 1)]$, $A_{ts} = (R_{\operatorname{seg}(t)} q_t) \cdot
        (R_{\operatorname{seg}(s)} k_s) / \sqrt{d_h}$, with the rotations $R$ of `rope`. $\operatorname{seg}(t)$ is the number of
        separators before $t$, and $\operatorname{intra}(t)$ the number of tokens before $t$ in its sentence. He et al. (2024).
    Shapes: embed [B, T, C] -> [B, T, C]. rotate [B, H, T, D] -> same.
    Source: He et al. (2024). Code: zhenyuhe00/BiPE. Only the code was read, not the paper's text.
    Deviations:
        * The authors train language models only. The use in a translation model is an extension of this project.
        * In cross-attention, a query at a separator has the number of the next sentence. The sentence number of a query is at
          most the number of the last source sentence.
        * The authors' sentences end with a full stop or a line break.
        * Z has 256 rows, and normal initial values of standard deviation $1/\sqrt{d}$. The authors' table has 1024
          rows, and initial values of standard deviation 0.02.
        * All tokens after the N-th token of a sentence share the last vector. In the authors' code this vector is always zero.
    Cost: N d parameters per stack, and no parameters in cross-attention. Each key is rotated once, because
        decoding stores the rotated keys.
    Raises: PositionError for a dictionary without the separator, and for heads of width 1.
    """

    @dataclass(frozen=True)
    class Options(BilevelOptions):
        base: float = option(10000.0, "base of the wavelengths", minimum=1.0)

    card = MethodCard(
        name="bipe_rope",
        title="Bilevel positions with rotations (BiPE-RoPE)",
        citations=("he-etal-2024-two",),
        survey="not in the survey",
        reference="both",
        injection="MAM",
        learnable=True,
        recurring=True,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder", "decoder"),
        extended_sites=("cross",),
        parameters="0 if cross else longest * d",
        documents=True,
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.pairs = dims.head_dim // 2
        if self.pairs == 0:
            raise PositionError(
                f"bipe_rope: heads of width {dims.head_dim} have no pair to rotate. Expected a width of at least 2. "
                "Use fewer heads."
            )
        self.waves = Sinusoids(2 * self.pairs, "halves", "paper", options.base)

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        of_queries = at is ctx.queries
        number = self.of_queries(ctx) if of_queries else self.separator.of_keys(ctx)
        if number is None:
            return x
        waves = ctx.once((self, "waves", of_queries), lambda: self._waves(number, x.size(-1)))
        return rotate(x, waves, self.pairs, "halves")

    def _waves(self, number: Tensor, width: int) -> Waves:
        """Return sines and cosines, [B, 1, T, D] each."""
        sin, cos = self.waves(number).unsqueeze(1).chunk(2, -1)
        return every_channel(sin, cos, "halves", width)


class BipeAlibi(_Bilevel):
    r"""Add a learned vector of the position in the sentence to each embedding. Subtract a penalty from each score. The penalty
    is proportional to the difference of the sentence numbers of query and key.

    Equation: $x_t = \sqrt{d} E[u_t] + Z[\min(\operatorname{intra}(t), N - 1)]$, $A_{ts} = q_t \cdot k_s / \sqrt{d_h} - f m_h
        |\operatorname{seg}(t) - \operatorname{seg}(s)|$, $f = 96$. $m_h$ are the slopes of `alibi`. $\operatorname{seg}(t)$ is
        the number of separators before $t$, and $\operatorname{intra}(t)$ the number of tokens before $t$ in its sentence. He et
        al. (2024).
    Shapes: embed [B, T, C] -> [B, T, C]. bias -> [B, H, T, S].
    Source: He et al. (2024). Code: zhenyuhe00/BiPE. Only the code was read, not the paper's text.
    Deviations:
        * The authors train language models only. The use in a translation model is an extension of this project.
        * The absolute value of seg(t) - seg(s) is an extension for encoders. It has no effect in causal attention.
        * In cross-attention, a query at a separator has the number of the next sentence. The sentence number of a query is at
          most the number of the last source sentence.
        * The authors' sentences end with a full stop or a line break.
        * Z has 256 rows, and normal initial values of standard deviation $1/\sqrt{d}$. The authors' table has 1024
          rows, and initial values of standard deviation 0.02.
        * All tokens after the N-th token of a sentence share the last vector. In the authors' code this vector is always zero.
    Cost: N d parameters per stack, and no parameters in cross-attention. One bias [B, H, T, S] per forward pass.
    Raises: PositionError for a dictionary without the separator.
    """

    @dataclass(frozen=True)
    class Options(BilevelOptions):
        factor: float = option(96.0, "factor f of the slopes", minimum=0.0, maximum=1e6)

    card = replace(
        BipeRope.card,
        name="bipe_alibi",
        title="Bilevel positions with linear biases (BiPE-ALiBi)",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.slopes = Constants([options.factor * slope for slope in slopes(dims.num_heads)])

    def bias(self, ctx: AttentionContext) -> Tensor | None:
        queries, keys = self.of_queries(ctx), self.separator.of_keys(ctx)
        if queries is None or keys is None:
            return None
        between = (keys.unsqueeze(1) - queries.unsqueeze(2)).abs().float()  # [B, T, S]
        return -self.slopes.values[:, None, None] * between.unsqueeze(1)

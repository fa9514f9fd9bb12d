"""Learned positions for each language, added to the embeddings."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option
from ...ops.distances import require_integer


class Language(PositionMethod):
    r"""Add a learned position vector to each embedding. Each language has its own vectors. A token of the sentence
    names the language of the sentence.

    Equation: $x_t = \sqrt{d} E[u_t] + P_g[t]$ with $E$ the token embeddings, $g$ the language of the sentence and $P_g \in
        \mathbb{R}^{n \times d}$ learned.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Artetxe, Ruder and Yogatama (2020). Survey, section 4.5.
    Deviations:
        * The authors learn positions of a new language for a frozen encoder of another language.
        * In translation, all languages are trained together.
        * The paper does not state the initial values for the positions of a new language. Its first token [CLS] has no position.
        * In the decoder, tokens before the language token use the positions of the first language of the option `tokens`.
        * The </s> at the beginning of a target is a token before the language token.
        * Without the option `tokens`, there is one language, and the method equals `learned`.
    Cost: (n + padding_idx + 1) d parameters per language and stack.
    Raises: PositionError for a language token that is not in the dictionary or is given twice. PositionError for a sentence
        without a language token, and for a sentence of more than n positions. PositionError for non-integer positions.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        tokens: str | None = option(
            None, "language tokens of the dictionary, separated by /, as in __en__/__de__ (none: one language)"
        )

    card = MethodCard(
        name="language",
        title="Positions of every language",
        citations=("artetxe-etal-2020-cross",),
        survey="4.5",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="error",
        evidence="reconstruction",
        sites=("encoder",),
        extended_sites=("decoder",),
        parameters="(tokens.count('/') + 1 if tokens else 1) * (n + padding_idx + 1) * d",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.tokens = options.tokens.split("/") if options.tokens else []
        missing = [token for token in self.tokens if token not in dims.words]
        if missing and dims.words:
            raise PositionError(
                f"language: the dictionary has no token {missing[0]!r}. Expected language tokens, such as __en__ of --task "
                "translation_multi_simple_epoch. Set tokens= to the language tokens of the text."
            )
        if len(set(self.tokens)) < len(self.tokens):
            raise PositionError(f"language: tokens={options.tokens} contains a token twice. Expected each token once.")
        #: index of each language token in the dictionary (-1 without a dictionary)
        self.numbers = [dims.words.get(token, -1) for token in self.tokens]
        self.origin = dims.padding_idx + 1
        languages = max(len(self.tokens), 1)
        self.weight = nn.Parameter(torch.empty(languages, dims.max_positions + self.origin, dims.embed_dim))
        nn.init.normal_(self.weight, std=dims.embed_dim**-0.5)
        nn.init.zeros_(self.weight[:, dims.padding_idx])

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        rows = require_integer(ctx.queries.ids) + self.origin  # [B or 1, T]
        if self.tokens:
            rows = rows + self._languages(tokens, ctx) * self.weight.size(1)
        return x + F.embedding(rows, self.weight.flatten(0, 1))

    def _languages(self, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the language of every token: [B, T] -> [B, 1 or T].

        In a causal decoder, the language of a token depends only on the tokens up to this token.
        """
        named = torch.zeros_like(tokens)  # 0, or the language number (from 1) if the token is a language token
        for index, number in enumerate(self.numbers, 1):
            named = named.masked_fill(tokens == number, index)
        known = None if ctx.state is None else ctx.state.get("language")
        if known is not None:
            named = torch.cat([known, named], 1)
        language = named.gather(1, (named > 0).int().argmax(1, keepdim=True))  # [B, 1], language of the first language token
        if ctx.state is not None:
            ctx.state.store_per_row("language", language)
        told, needed = language > 0, torch.ones_like(language, dtype=torch.bool)
        if self.dims.causal:
            told = (named > 0).cumsum(1)[:, -tokens.size(1) :] > 0
            # a target begins with </s> or with its language token
            needed = tokens.ne(self.dims.padding_idx) & (ctx.queries.ids > 0)
        lacking = needed & ~told
        # in decoding, the error is raised only if no row has a language token. If fairseq forces the first token, all beams
        # except the first beam contain arbitrary tokens. The score of these beams is minus infinity
        if bool(lacking.any() if ctx.state is None else lacking.all()):
            side, flag = ("target", "--decoder-langtok") if self.dims.causal else ("source", "--encoder-langtok src")
            raise PositionError(
                f"language: a {side} sentence has no language token{' at its start' * self.dims.causal}. "
                f"Expected one of {', '.join(self.tokens)}. Add it with {flag} of --task translation_multi_simple_epoch."
            )
        return (language - 1) * told

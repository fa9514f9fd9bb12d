"""Find the sentences of a document. Separator tokens divide a document into sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..core import AttentionContext, Dims, PositionError
from .sinusoids import Sinusoids

#: fairseq's token at the end of a sentence
_END = "</s>"
#: index of the separator if there is no dictionary. No token has this index
_ABSENT = -1


def before(tokens: Tensor, separator: int) -> Tensor:
    """Count the separators before each token, [B, T] -> [B, T]. A separator belongs to the sentence before it."""
    ends = tokens.eq(separator).long()
    return ends.cumsum(1) - ends


def opened(tokens: Tensor, separator: int) -> Tensor:
    """Count the separators up to and including each token, [B, T] -> [B, T]. A separator belongs to the sentence after it."""
    return tokens.eq(separator).long().cumsum(1)


def inside(tokens: Tensor, separator: int) -> Tensor:
    """Return the index of each token in its sentence, from 0: [B, T] -> [B, T]."""
    columns = torch.arange(tokens.size(1), device=tokens.device)
    ends = tokens.eq(separator)
    begins = torch.where(ends, columns + 1, torch.zeros_like(columns))  # the column after each separator
    first = begins.cummax(1).values.roll(1, 1)  # column of the first token of the sentence
    first[:, 0] = 0
    return columns - first


def sentences(tokens: Tensor, separator: int) -> Tensor:
    """Count the sentences of each document, [B, T] -> [B]."""
    return tokens.eq(separator).sum(1) + 1


#: type of the functions `before`, `opened` and `inside`
Count = Callable[[Tensor, int], Tensor]


class Separator:
    """The separator of sentences at one site, with its indices in the source and target dictionaries.

    Without a dictionary, a document is one sentence. Raise PositionError if a dictionary lacks the separator. Also raise
    PositionError if the separator is </s> at the sites decoder and cross, because a decoder writes </s> only at the end.
    """

    def __init__(self, method: str, token: str, dims: Dims):
        self._method, self._token = method, token
        self._ends = int(token == _END)  # the last token of a source is then a separator, after which no sentence begins
        if token == _END and (dims.causal or dims.cross):
            raise PositionError(
                f"{method}: separator {token!r} and the end of sentence are one token. The decoder never writes one inside a "
                "sentence. Give separator=TOKEN."
            )
        self.own = self._number(dims.words, "target" if dims.causal or dims.cross else "source")
        self.source = self._number(dims.source_words or dims.words, "source")
        self.keys = self.source if dims.cross else self.own

    def _number(self, words: Mapping[str, int], side: str) -> int:
        if words and self._token not in words:
            raise PositionError(
                f"{self._method}: the {side} dictionary has no token {self._token!r}. Expected a token of it. "
                "Give separator=TOKEN."
            )
        return words.get(self._token, _ABSENT)

    def of_queries(self, ctx: AttentionContext, count: Count = before) -> Tensor | None:
        """Return the result of `count` for each query: [B, T]. Return None if the model does not provide tokens.

        In the cross-attention of beam search, T is the number of beams.
        """
        if ctx.prefix is None:
            return None
        found = count(ctx.prefix, self.own)
        if ctx.tokens is not None and ctx.cross and ctx.state is not None:
            return found[:, -1].view(ctx.tokens.size(0), -1)  # [B beams, T'] -> [B, beams]
        return found[:, found.size(1) - ctx.queries.ids.size(1) :]

    def of_keys(self, ctx: AttentionContext, count: Count = before) -> Tensor | None:
        """Return the result of `count` for each key: [B, S]. Return None if the context contains no tokens."""
        return None if ctx.tokens is None else count(ctx.tokens, self.keys)

    def sentences(self, ctx: AttentionContext) -> Tensor | None:
        """Return the number of sentences of the source: [B, 1]. Return None if the context contains no source tokens."""
        return None if ctx.source is None else (sentences(ctx.source, self.source) - self._ends).clamp(min=1).unsqueeze(1)


def labels(separator: Separator, ctx: AttentionContext, count: str) -> Tensor | None:
    """Return the label of the sentence that contains each query: [B, T]. Labels begin with 1.

    Return None if the context contains no tokens.

    count: with "start", the first sentence has label 1. With "end", sentences are counted backwards from the last source
    sentence, which has label 1. With "end", if the target has more sentences than the source, the additional sentences also have
    label 1. If the context contains no source tokens, "end" has the same result as "start".
    """
    number, sentences_of_source = separator.of_queries(ctx), separator.sentences(ctx)
    if number is None or count == "start":
        return None if number is None else number + 1
    return number + 1 if sentences_of_source is None else (sentences_of_source - number).clamp(min=1)


def sentence_vectors(vectors: Tensor | Sinusoids | None, label: Tensor, width: int) -> Tensor:
    """Return a vector for the label of each token's sentence, [B, T] -> [B, T, width].

    The result has the precision of the table. Sinusoids and one-hot vectors are in float32.

    vectors: a table [rows, width], or sinusoids, or None for one-hot vectors. Labels beyond the table use the last row. Labels
    beyond the channels of one-hot vectors use the last channel.
    """
    if isinstance(vectors, Sinusoids):
        return vectors(label)
    if vectors is not None:
        return torch.nn.functional.embedding((label - 1).clamp(max=vectors.size(0) - 1), vectors)
    return torch.nn.functional.one_hot((label - 1).clamp(max=width - 1), width).float()


def refuse_width(method: str, kind: str, width: int) -> None:
    """Raise PositionError if `kind` is "sinusoidal" and the width is odd or less than 4.

    For width 2, fairseq's formula divides by zero.
    """
    if kind == "sinusoidal" and (width < 4 or width % 2):
        raise PositionError(
            f"{method}: sinusoids of sentences have {width} channels. Expected an even number of at least 4. Change the width."
        )

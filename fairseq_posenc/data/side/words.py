"""To which word of a sentence each of its subwords belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .files import Fault

MARK = "\u2581"  # with which SentencePiece begins a word
JOINT = "@@"  # suffix of subword-nmt for a word that continues


def of_words(tokens: Sequence[str]) -> list[int]:
    """Tokens are words."""
    return list(range(1, len(tokens) + 1))


def of_subword_nmt(tokens: Sequence[str]) -> list[int]:
    """Return a subword that ends with @@ goes on in the next."""
    found, word, goes_on = [], 0, False
    for token in tokens:
        word += not goes_on
        goes_on = token.endswith(JOINT)
        found.append(word)
    return found


def of_sentencepiece(tokens: Sequence[str]) -> list[int]:
    """Return a piece that begins with the mark begins a word, and so does the first piece.

    Raises Fault for a piece of several words, which only a model with --split_by_whitespace=false has.
    """
    found, word = [], 0
    for place, token in enumerate(tokens, 1):
        if MARK in token.lstrip(MARK):
            raise Fault(
                "SIDE-MAP",
                f"subword {place}, {token!r}, contains several words. Expected subwords of one word. Use split_by_whitespace.",
            )
        word += not word or token.startswith(MARK)
        found.append(word)
    return found


#: how fairseq-generate joins subwords (--remove-bpe) -> the word, from 1, of every subword of a sentence
SUBWORDS: dict[str, Callable[[Sequence[str]], list[int]]] = {
    "none": of_words,
    "subword_nmt": of_subword_nmt,
    "sentencepiece": of_sentencepiece,
}

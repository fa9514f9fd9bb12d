"""Find the word of a sentence to which each subword belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .files import Fault

MARK = "\u2581"  # the marker at the beginning of a word in SentencePiece
JOINT = "@@"  # the suffix in subword-nmt of a word that continues


def of_words(tokens: Sequence[str]) -> list[int]:
    """Return the words of tokens that are words."""
    return list(range(1, len(tokens) + 1))


def of_subword_nmt(tokens: Sequence[str]) -> list[int]:
    """Return the word of every subword. A subword that ends with @@ continues in the next subword."""
    found, word, goes_on = [], 0, False
    for token in tokens:
        word += not goes_on
        goes_on = token.endswith(JOINT)
        found.append(word)
    return found


def of_sentencepiece(tokens: Sequence[str]) -> list[int]:
    """Return the word of every piece. A piece with the marker begins a word. The first piece also begins a word.

    Raise Fault for a piece of several words. Only a model with --split_by_whitespace=false has such pieces.
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


#: value of fairseq-generate's --remove-bpe -> function that returns the word, from 1, of every subword of a sentence
SUBWORDS: dict[str, Callable[[Sequence[str]], list[int]]] = {
    "none": of_words,
    "subword_nmt": of_subword_nmt,
    "sentencepiece": of_sentencepiece,
}

"""Compute the word index of each subword of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .files import Fault

MARK = "\u2581"  # SentencePiece: prefix of a subword that begins a word
JOINT = "@@"  # subword-nmt: suffix of a subword that is not the last subword of its word


def of_words(tokens: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every token of a text without subwords. Each token is one word."""
    return list(range(1, len(tokens) + 1))


def of_subword_nmt(tokens: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every subword. After a subword that ends with @@, the word continues."""
    found, word, goes_on = [], 0, False
    for token in tokens:
        word += not goes_on
        goes_on = token.endswith(JOINT)
        found.append(word)
    return found


def of_sentencepiece(tokens: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every subword.

    The first subword begins a word. Every subword that begins with `MARK` also begins a word.

    Raise Fault for a subword that contains several words. Only models with --split_by_whitespace=false have such subwords.
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


#: value of fairseq-generate's --remove-bpe -> function that returns the word index, from 1, of every subword of a sentence
SUBWORDS: dict[str, Callable[[Sequence[str]], list[int]]] = {
    "none": of_words,
    "subword_nmt": of_subword_nmt,
    "sentencepiece": of_sentencepiece,
}

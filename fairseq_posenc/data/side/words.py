"""Compute the word index of each subword of a sentence."""

from __future__ import annotations

import functools
import operator
import unicodedata
from collections.abc import Callable, Sequence

from .files import Fault, check_words

MARK = "\u2581"  # SentencePiece: prefix of a subword that begins a word
JOINT = "@@"  # subword-nmt: suffix of a subword that is not the last subword of its word

#: characters that SentencePiece's rule nmt_nfkc deletes (None) or replaces by a blank. NFKC does not change these characters
_NMT: dict[int, str | None] = {
    **dict.fromkeys([*range(0x01, 0x09), *range(0x0E, 0x1C), 0x7F, 0x8F, 0x9F]),
    **dict.fromkeys([0x061C, 0x200B, 0x200C, 0x200E, 0x200F, 0xFEFF, 0xFFFD], " "),
}


def of_words(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every token of a text without subwords. Each token is one word."""
    return check_words(range(1, len(tokens) + 1), len(words))


def of_subword_nmt(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every subword. After a subword that ends with @@, the word continues."""
    found, word, goes_on = [], 0, False
    for token in tokens:
        word += not goes_on
        goes_on = token.endswith(JOINT)
        found.append(word)
    return check_words(found, len(words))


def of_sentencepiece(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the word index, from 1, of every subword.

    The first subword begins a word of SentencePiece. Every subword that begins with `MARK` also begins a word of SentencePiece.
    SentencePiece normalises the text. A word of the text can therefore become several words of SentencePiece, or be deleted. A
    deleted word has no subwords.

    Raise Fault for a subword that contains several words. Only models with --split_by_whitespace=false have such subwords.
    """
    found: list[int] = []
    made: list[str] = []  # words of SentencePiece
    for place, token in enumerate(tokens, 1):
        letters = token.lstrip(MARK)
        if MARK in letters:
            raise Fault(
                "SIDE-MAP",
                f"subword {place}, {token!r}, contains several words. Expected subwords of one word. Use split_by_whitespace.",
            )
        if not made or token.startswith(MARK):
            made.append("")
        made[-1] += letters
        found.append(len(made))
    word_of = [number for number, count in enumerate(_made_of_each(words, made), 1) for _ in range(count)]
    return [word_of[number - 1] for number in found]


def _made_of_each(words: Sequence[str], made: Sequence[str]) -> list[int]:
    """Return the number of words of SentencePiece that each word of the text became.

    The normalisation rule is unknown. Try the rules that explain the number of all words of SentencePiece, and use the rule with
    most equal words. Raise Fault if no rule explains the number, or if the best rules lead to different results.
    """
    text = " ".join(words)
    if len(words) == len(made) and text.isascii() and text.isprintable():
        return [1] * len(words)
    best, counts = -1, set[tuple[int, ...]]()
    for parts in zip(*map(readings, words)):
        joined = [part for each in parts for part in each]
        equal = sum(map(operator.eq, joined, made)) if len(joined) == len(made) else -1
        if equal > best:
            best, counts = equal, set()
        if equal == best >= 0:
            counts.add(tuple(map(len, parts)))
    # MARK within a word makes additional words without letters, which another rule can explain by chance
    if len(counts) == 1 and (MARK not in text or best == len(made)):
        return list(counts.pop())
    ambiguous = "the words of the subwords are ambiguous."
    other = f"the subwords belong to {len(made)} words, but the text has {len(words)}."
    raise Fault("SIDE-MAP", f"{ambiguous if counts else other} {_reason(words)}")


@functools.lru_cache(1 << 16)
def readings(word: str) -> tuple[list[str], ...]:
    """Return the words that SentencePiece makes of one word, with each of the rules identity, nfkc and nmt_nfkc."""
    texts = word, unicodedata.normalize("NFKC", word), unicodedata.normalize("NFKC", word.translate(_NMT))
    return tuple(text.replace(MARK, " ").split() for text in texts)


def _reason(words: Sequence[str]) -> str:
    """Return the end of an error message. It names the first character that SentencePiece may have changed."""
    same = "Expected subwords of the same text."
    for number, word in enumerate(words, 1):
        for character in word:
            if unicodedata.category(character) in ("Cc", "Cf") or len(readings(character)[-1]) != 1:
                return (
                    f"Word {number} contains the character U+{ord(character):04X}, which SentencePiece may have deleted or "
                    f"replaced by a blank. {same} Remove the character from the text."
                )
    return same


#: value of fairseq-generate's --remove-bpe -> function that returns the word index of every subword of a sentence. The first
#: word has the index 1. The arguments of the function are the subwords and the words of the sentence
SUBWORDS: dict[str, Callable[[Sequence[str], Sequence[str]], list[int]]] = {
    "none": of_words,
    "subword_nmt": of_subword_nmt,
    "sentencepiece": of_sentencepiece,
}

"""Count the printed characters of the tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

_SILENT = ("<s>", "<pad>", "</s>")


def is_sentencepiece(symbols: Collection[str]) -> bool:
    """Return whether the symbols of a vocabulary are from SentencePiece, in which the first subword of a word begins with "▁".

    Other text can contain "▁" as well. The symbols are from SentencePiece if more symbols begin with "▁" than end with "@@", the
    mark of subword-nmt, and if at least one symbol in a hundred begins with "▁". In a vocabulary of characters, only the symbol
    "▁" begins with it, and at least half of the symbols have one character.
    """
    begins, continued = sum(symbol.startswith("▁") for symbol in symbols), sum(symbol.endswith("@@") for symbol in symbols)
    of_characters = "▁" in symbols and 2 * sum(len(symbol) == 1 for symbol in symbols) >= len(symbols)
    return begins > continued and (of_characters or 100 * begins >= len(symbols))


def printed_characters(words: Mapping[str, int], size: int) -> Tensor:
    """Return the number of printed characters of every token, [V], including one space per word.

    The symbols <s>, <pad> and </s> have 0 characters. The token <unk> has 5 characters (SentencePiece), or 6 characters
    including a space (subword-nmt). The tokens "▁ab" (SentencePiece) and "ab" (subword-nmt) have 3 characters: two letters
    and a space. The tokens "ab" (SentencePiece) and "ab@@" (subword-nmt) have 2 characters.
    """
    sentencepiece = is_sentencepiece(words)
    counts = torch.zeros(size, dtype=torch.long)
    for word, index in words.items():
        if word not in _SILENT:
            space = 0 if sentencepiece else -len("@@") if word.endswith("@@") else 1
            counts[index] = len(word) + space
    return counts

"""Count the printed characters of the tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_SILENT = ("<s>", "<pad>", "</s>")


def printed_characters(words: Mapping[str, int], size: int) -> Tensor:
    """Return the number of printed characters of every token, [V], including one space per word.

    The symbols <s>, <pad> and </s> have 0 characters. The token <unk> has 5 characters (SentencePiece), or 6 characters
    including a space (subword-nmt). The tokens "▁ab" (SentencePiece) and "ab" (subword-nmt) have 3 characters: two letters
    and a space. The tokens "ab" (SentencePiece) and "ab@@" (subword-nmt) have 2 characters.
    The tokens are from SentencePiece if more tokens begin with "▁" than end with "@@".
    """
    sentencepiece = sum(word.startswith("▁") for word in words) > sum(word.endswith("@@") for word in words)
    counts = torch.zeros(size, dtype=torch.long)
    for word, index in words.items():
        if word not in _SILENT:
            space = 0 if sentencepiece else -len("@@") if word.endswith("@@") else 1
            counts[index] = len(word) + space
    return counts

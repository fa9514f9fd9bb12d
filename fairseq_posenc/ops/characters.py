"""How many characters the tokens of a vocabulary print."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_SILENT = ("<s>", "<pad>", "</s>")


def printed_characters(words: Mapping[str, int], size: int) -> Tensor:
    """[V], where every word counts with the one space beside it and what begins, fills or ends a sentence counts 0.

    "▁ab" of SentencePiece has 3, as "ab" of subword-nmt; "ab" within a word, which subword-nmt writes "ab@@", has 2.
    """
    sentencepiece = any(word.startswith("▁") for word in words)
    counts = torch.zeros(size, dtype=torch.long)
    for word, index in words.items():
        if word not in _SILENT:
            space = 0 if sentencepiece else -len("@@") if word.endswith("@@") else 1
            counts[index] = len(word) + space
    return counts

"""Shuffle the words of source sentences in training, so that a model depends less on word order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ....ops.characters import is_sentencepiece


class WordShuffle(nn.Module):
    """Shuffle the words of a source sentence with a given probability, only in training. The target is unchanged.

    Shapes: tokens [B, S], padded on the right -> [B, S]. The subwords of a word stay together and in order. Words are found by
        @@ at the end of subwords (subword-nmt), or by SentencePiece's symbol at the beginning of words. </s> stays last, and <s>
        stays first.
    Source: Liu et al. (2021b), who permute the words of training sentences. The share of permuted sentences is not known.
    """

    def __init__(self, dictionary: Any, probability: float):
        super().__init__()
        self.probability, self.first, self.ends = probability, dictionary.bos(), (dictionary.eos(), dictionary.pad())
        marked = is_sentencepiece(dictionary.symbols)
        continues = [marked and not symbol.startswith("\u2581") for symbol in dictionary.symbols]
        joins_next = [symbol.endswith("@@") for symbol in dictionary.symbols]
        self.register_buffer("continues", torch.tensor(continues), persistent=False)
        self.register_buffer("joins_next", torch.tensor(joins_next), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.training:
            return tokens
        begins = ~self.continues[tokens]
        begins[:, 1:] &= ~self.joins_next[tokens[:, :-1]]
        begins[:, 0] = True
        word = begins.cumsum(1) - 1  # [B, S], index of the word that contains the token
        draws = torch.rand(tokens.shape, device=tokens.device).gather(1, word)  # one number per word
        chosen = torch.rand(tokens.size(0), 1, device=tokens.device) < self.probability
        draws = draws * chosen  # in sentences that are not chosen, all random numbers are 0, so that words keep their order
        draws = draws.masked_fill(tokens == self.first, -1.0)
        for end in self.ends:
            draws = draws.masked_fill(tokens == end, 1.0)
        return tokens.gather(1, draws.argsort(stable=True, dim=1))

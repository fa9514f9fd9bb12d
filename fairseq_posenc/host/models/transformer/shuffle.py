"""Source sentences whose words come in another order in training, so that a model learns to rely on order less."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class WordShuffle(nn.Module):
    """Puts the words of a source sentence into a random order, in training and with a probability; the target stays.

    Shapes: tokens [B, S], right-padded -> the same. Subwords of a word stay together and in order, be they marked at their end
    (@@) or at the beginning of words (SentencePiece); the end of the sentence stays at its end, and a first symbol (<s>) at its
    beginning.
    Source: Liu et al. (2021b), where words of training sentences are permuted; how often is unverified.
    """

    def __init__(self, dictionary: Any, probability: float):
        super().__init__()
        self.probability, self.first, self.ends = probability, dictionary.bos(), (dictionary.eos(), dictionary.pad())
        marked = any(symbol.startswith("\u2581") for symbol in dictionary.symbols)
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
        word = begins.cumsum(1) - 1  # [B, S], the number of the word that a token belongs to
        draws = torch.rand(tokens.shape, device=tokens.device).gather(1, word)  # one for every word
        chosen = torch.rand(tokens.size(0), 1, device=tokens.device) < self.probability
        draws = draws * chosen  # equal draws keep their order
        draws = draws.masked_fill(tokens == self.first, -1.0)
        for end in self.ends:
            draws = draws.masked_fill(tokens == end, 1.0)
        return tokens.gather(1, draws.argsort(stable=True, dim=1))

"""Predict the output length from the encoder output."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: number of classes (differences between target length and source length in tokens), and index of the class of difference 0
_CLASSES, _EQUAL = 256, 128


class LengthPredictor(nn.Module):
    """Classify the difference between target length and source length from the mean of the encoder states.

    `encoder_out` is always the dictionary that this plugin's encoder returns. Lengths [B] do not count </s>.

    Source: fairseq's non-autoregressive models. Oka, Chousa, Sudoh and Nakamura (2020) use BERT to predict the output lengths
        that the length-difference position encoding (LDPE) reads.
    """

    def __init__(self, width: int, weight: float, stop_gradient: bool):
        super().__init__()
        self.loss_weight, self.stop_gradient = weight, stop_gradient
        self.weight = nn.Parameter(torch.empty(_CLASSES, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, encoder_out: dict[str, list[Tensor]]) -> Tensor:
        """Return logits [B, classes]."""
        states = encoder_out["encoder_out"][0].transpose(0, 1)  # [S, B, C] -> [B, S, C]
        if self.stop_gradient:
            states = states.detach()
        if encoder_out["encoder_padding_mask"]:
            states = states.masked_fill(encoder_out["encoder_padding_mask"][0].unsqueeze(-1), 0.0)
        mean = states.sum(1) / encoder_out["src_lengths"][0].to(states.dtype)
        return F.linear(mean, self.weight).float()

    def loss(self, encoder_out: dict[str, list[Tensor]], lengths: Tensor) -> Tensor:
        """Return the weighted cross-entropy [B] for these target lengths [B]."""
        classes = (lengths - self._source(encoder_out) + _EQUAL).clamp(0, _CLASSES - 1)
        return self.loss_weight * F.cross_entropy(self(encoder_out), classes, reduction="none")

    def length(self, classes: Tensor, encoder_out: dict[str, list[Tensor]]) -> Tensor:
        """Return the target lengths [B] that correspond to the classes [B].

        A class is a difference between target length and source length.
        """
        return classes - _EQUAL + self._source(encoder_out)

    @staticmethod
    def _source(encoder_out: dict[str, list[Tensor]]) -> Tensor:
        return encoder_out["src_lengths"][0].squeeze(1).long() - 1

"""Adaptive computation time: how often the one layer of a Universal Transformer acts on each word."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....core import AttentionContext

#: treatment of the state of a word that has halted
HALTING = ("continue", "copy")


class Halting(nn.Linear):
    """Compute before every step, from the state of a word, the probability that the step is its last.

    Equation: p_n = sigmoid(w . s_n + b) of the state s_n with its coordinates. A word runs N steps, the fewest with p_1 + ... +
        p_N > 1 - epsilon. With R = 1 - p_1 - ... - p_(N-1), weights a_n = p_n before the last step and a_N = R, its output is o_N
        of o_n = a_n F(s_n) + (1 - a_n) o_(n-1), o_0 = 0. Training also minimises N + R of every word; R has a gradient.
    Source: Dehghani et al. (2019), section on dynamic halting and the code of its appendix, after Graves (2016); tensor2tensor.
    Deviations: what has halted goes on as in the authors' code, so that other words see later states of it, or is copied to later
        steps as in the text (copy); words that still run after the last step have weights of less than 1, as in the code; padding
        neither runs nor counts; the ponder cost is summed over words and divided by target tokens, as the cross-entropy is, also
        for the words of the encoder, where tensor2tensor takes the mean over words; p starts at 0.73 (b = 1) as in the code.
    Cost: d + 1 parameters per stack, and a layer for every step: twice the time of stock where there are twice its layers.
        Training stops when all words have halted; evaluation runs all steps, because later words attend to them, so that
        teacher forcing and decoding agree whatever the batch.
    """

    def __init__(self, width: int, how: str, epsilon: float, ponder_weight: float):
        super().__init__(width, 1)
        nn.init.xavier_uniform_(self.weight)
        nn.init.ones_(self.bias)
        self.copies, self.epsilon, self.ponder_weight = how == "copy", epsilon, ponder_weight

    def forward(self, state: Tensor) -> Tensor:
        """[B, T, C] -> p in float32 or wider, [B, T, 1]."""
        state = state.to(torch.promote_types(state.dtype, torch.float32))
        return F.linear(state, self.weight.to(state.dtype), self.bias.to(state.dtype)).sigmoid()


class Pondering:
    """The words of one forward on their way through the steps."""

    def __init__(self, halting: Halting, x: Tensor, padding: Tensor | None):
        words = torch.ones_like(x[..., :1], dtype=torch.bool)  # [B, T, 1], as all that follow
        self.halting = halting
        self.words = self.running = words if padding is None else words & ~padding.unsqueeze(-1)
        self.total = self.remainder = self.steps = torch.zeros_like(x[..., :1], dtype=torch.promote_types(x.dtype, torch.float32))
        self.output = torch.zeros_like(x)

    def before_step(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the input of the layer [B, T, C], from the states without and with the coordinates of this step."""
        p = self.halting(state)
        self.acting = self.running
        last = self.running & (self.total + p > 1 - self.halting.epsilon)
        self.running = self.running & ~last
        self.steps = self.steps + self.acting
        self.weight = torch.where(last, 1 - self.total, p * self.running)
        self.remainder = torch.where(last, 1 - self.total, self.remainder)
        self.total = self.total + p * self.running
        self.read = torch.where(self.acting, state, x) if self.halting.copies else state
        return self.read

    def after_step(self, x: Tensor) -> Tensor:
        """Return the states [B, T, C] from the output of the layer."""
        x = torch.where(self.acting, x, self.read) if self.halting.copies else x
        weight = self.weight.to(x.dtype)
        self.output = x * weight + self.output * (1 - weight)
        return x

    def finished(self) -> bool:
        """Return whether all words have halted."""
        return not bool(self.running.any())

    def report(self, ctx: AttentionContext, side: str) -> None:
        """Add the ponder cost to the loss, and log the steps per word."""
        cost = (self.steps + self.remainder) * self.words
        ctx.add_loss("ponder", self.halting.ponder_weight * cost.sum((1, 2)))
        ctx.add_mean(f"{side}_steps", self.steps.sum((1, 2)), self.words.sum((1, 2)))

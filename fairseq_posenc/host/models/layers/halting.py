"""Adaptive computation time: for each token, a Universal Transformer computes how often its shared layer runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....core import AttentionContext

#: treatment of a token after it has halted: its state continues to be updated, or is copied
HALTING = ("continue", "copy")


class Halting(nn.Linear):
    """Compute, before every step, the probability that a token halts after this step.

    Equation: p_n = sigmoid(w . s_n + b), where s_n is the state of the token, including the coordinates of step n. A token runs N
        steps. N is the smallest number with p_1 + ... + p_N > 1 - epsilon. The remainder is R = 1 - p_1 - ... - p_(N-1). The
        weights are a_n = p_n for n < N, and a_N = R. F is the layer. The output is o_N, with o_n = a_n F(s_n) +
        (1 - a_n) o_(n-1) and o_0 = 0. Training also minimises N + R of every token. Only R has a gradient.
    Source: Dehghani et al. (2019), section on dynamic halting, and the code in the appendix. Graves (2016). tensor2tensor.
    Deviations:
        * By default, halted tokens continue to be updated, as in the authors' code. Running tokens then attend to the updated
          states of halted tokens. With `copy`, the states of halted tokens are copied, as in the text of the paper.
        * If a token has not halted after the last step, its weights sum to less than 1, as in the authors' code.
        * Padding has no steps and no ponder cost.
        * The ponder cost is summed over tokens and divided by the number of target tokens, like the cross-entropy. tensor2tensor
          uses the mean over tokens.
        * b is initially 1, as in the authors' code, so that p is initially near 0.73.
    Cost: d + 1 parameters per stack, and one run of the layer per step. In training, the model skips the remaining steps if all
        tokens of the batch have halted. In evaluation, the model runs all steps.
        A token that is decoded later can need more steps. In these steps, this token attends to the states of halted tokens.
        In evaluation, the model computes these states, because it runs all steps. Teacher forcing and decoding therefore
        compute the same result in evaluation. This result does not depend on the other sentences of the batch.
    """

    def __init__(self, width: int, how: str, epsilon: float, ponder_weight: float):
        super().__init__(width, 1)
        nn.init.xavier_uniform_(self.weight)
        nn.init.ones_(self.bias)
        self.copies, self.epsilon, self.ponder_weight = how == "copy", epsilon, ponder_weight

    def forward(self, state: Tensor) -> Tensor:
        """Return the probability p [B, T, 1], in float32 or wider, from the states [B, T, C]."""
        state = state.to(torch.promote_types(state.dtype, torch.float32))
        return F.linear(state, self.weight.to(state.dtype), self.bias.to(state.dtype)).sigmoid()


class Pondering:
    """The state of adaptive computation time in one forward pass.

    For each token, the state contains the sum of the halting probabilities, the remainder, the number of steps and the output.
    """

    def __init__(self, halting: Halting, x: Tensor, padding: Tensor | None):
        words = torch.ones_like(x[..., :1], dtype=torch.bool)  # [B, T, 1], like all tensors below except `output`
        self.halting = halting
        self.words = self.running = words if padding is None else words & ~padding.unsqueeze(-1)
        self.total = self.remainder = self.steps = torch.zeros_like(x[..., :1], dtype=torch.promote_types(x.dtype, torch.float32))
        self.output = torch.zeros_like(x)

    def before_step(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the input of the layer [B, T, C]. `state` is `x` with the coordinates of this step."""
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
        """Update the output of all steps with the output `x` of the layer. Return the states [B, T, C] after this step.

        The new output of all steps is `weight` x + (1 - `weight`) times the previous output of all steps.
        """
        x = torch.where(self.acting, x, self.read) if self.halting.copies else x
        weight = self.weight.to(x.dtype)
        self.output = x * weight + self.output * (1 - weight)
        return x

    def finished(self) -> bool:
        """Return whether all tokens have halted."""
        return not bool(self.running.any())

    def report(self, ctx: AttentionContext, side: str) -> None:
        """Add the ponder cost to the loss, and log the number of steps per token."""
        cost = (self.steps + self.remainder) * self.words
        ctx.add_loss("ponder", self.halting.ponder_weight * cost.sum((1, 2)))
        ctx.add_mean(f"{side}_steps", self.steps.sum((1, 2)), self.words.sum((1, 2)))

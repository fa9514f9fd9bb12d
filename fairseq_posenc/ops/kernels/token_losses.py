"""Cross-entropy of tokens from logits, in blocks of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .. import devices
from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: maximum number of logits in a block: on a CPU, a block in float32 fits into the cache of one core
_BLOCK_ON_CPU, _BLOCK = 2**17, 2**25


class TokenLosses(torch.autograd.Function):
    """Compute the two terms of the label-smoothed cross-entropy of each token.

    Shapes: logits [N, V], targets [N] -> nll [N, 1] and smooth [N, 1].

    Equation: nll_n = -log p_n[y_n], smooth_n = -sum_v log p_n[v], p_n = softmax(x_n). Both are 0 where y_n is `ignored`.
    Cost: on an accelerator, stores the logits. Log probabilities and their gradients, in float32 or wider, exist for one block of
    tokens at a time. The backward pass computes the probabilities of each block again, and writes the gradient in the precision
    of the logits. On a CPU, stores the exponentials of all logits instead, so that the backward pass computes no exponentials.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, target: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
        target = target.unsqueeze(-1)
        hidden = target.eq(ignored)
        kept = torch.empty_like(logits, dtype=at_least_float32(logits[:0]).dtype) if devices.on_cpu(logits) else None
        nll, smooth, sums = [], [], []
        for rows in _blocks(logits):
            x = at_least_float32(logits[rows])
            if kept is None:
                found = x.log_softmax(-1)
                nll.append(found.gather(-1, target[rows]))
                smooth.append(found.sum(-1, keepdim=True))
            else:
                largest = x.amax(-1, keepdim=True)
                sums.append(torch.sub(x, largest, out=kept[rows]).exp_().sum(-1, keepdim=True))
                normaliser = largest + sums[-1].log()
                nll.append(x.gather(-1, target[rows]) - normaliser)
                smooth.append(x.sum(-1, keepdim=True) - x.size(-1) * normaliser)
        ctx.dtype = logits.dtype
        ctx.save_for_backward(logits if kept is None else kept, torch.cat(sums) if sums else None, target, hidden)
        return (-torch.cat(nll)).masked_fill_(hidden, 0.0), (-torch.cat(smooth)).masked_fill_(hidden, 0.0)

    @staticmethod
    @first_derivative_only
    def backward(ctx, of_nll: Tensor, of_smooth: Tensor):
        kept, sums, target, hidden = ctx.saved_tensors
        of_nll, of_smooth = of_nll.masked_fill(hidden, 0.0), of_smooth.masked_fill(hidden, 0.0)
        total = of_nll + kept.size(-1) * of_smooth  # gradient of the log of the sum of exponentials
        grad = torch.empty_like(kept, dtype=ctx.dtype)
        if sums is not None:  # the gradient is total * p - of_smooth, minus of_nll at the target
            total = total / sums
            for rows in _blocks(kept):
                out = grad[rows] if grad.dtype == kept.dtype else None
                found = torch.mul(kept[rows], total[rows], out=out).sub_(of_smooth[rows])
                found.scatter_add_(-1, target[rows], -of_nll[rows])
                if out is None:
                    grad[rows] = found
            return grad, None, None
        taken = (of_nll / total).masked_fill_(total == 0, 0.0)
        # the gradient is total * (p - taken) - of_smooth. `taken` is subtracted only at the target
        for rows in _blocks(kept):
            probs = at_least_float32(kept[rows]).softmax(-1).scatter_add_(-1, target[rows], -taken[rows])
            torch.addcmul(-of_smooth[rows], probs, total[rows], out=grad[rows])
        return grad, None, None


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Yield ranges of tokens."""
    size = max(1, (_BLOCK_ON_CPU if devices.on_cpu(logits) else _BLOCK) // max(1, logits.size(1)))
    return (slice(first, first + size) for first in range(0, logits.size(0), size))

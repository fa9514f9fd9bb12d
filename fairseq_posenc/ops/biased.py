"""Attention with a learned bias on a CPU, where torch's fused kernel gives no gradient for a bias."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import widen

#: scores that the backward pass holds at a time; a few of them fit a core's cache
_SCORES = 2**19
#: scores of one head from which this is no slower than torch's own way and spares most of its memory
_WORTHWHILE = 2**18


def attention(q: Tensor, k: Tensor, v: Tensor, logits: Tensor | None, dropout: float, causal: bool, scale: float) -> Tensor:
    """scaled_dot_product_attention, by `BiasedAttention` where that is better."""
    learned = logits is not None and logits.requires_grad and torch.is_grad_enabled()
    if learned and q.device.type == "cpu" and not dropout and q.size(2) * k.size(2) >= _WORTHWHILE:
        return BiasedAttention.apply(q, k, v, logits, scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=logits, dropout_p=dropout, is_causal=causal, scale=scale)


class BiasedAttention(torch.autograd.Function):
    """softmax(scale q k^T + logits) v: [B, H, T, D], [B, H, S, D] twice, [B or 1, H or 1, T, S] -> [B, H, T, D].

    Forwards torch's fused kernel; backwards in blocks, whose weights are made again. Nothing of the size
    [B, H, T, S] is kept, where torch's own way keeps several.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, logits: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=logits, scale=scale)
        ctx.save_for_backward(q, k, v, logits, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, logits, out = ctx.saved_tensors
        of_logits = torch.zeros_like(logits, dtype=widen(logits).dtype)
        of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for some, queries in _blocks(q, k):
            own = (some if logits.size(0) > 1 else slice(None), slice(None), queries)
            g, rows = grad[some, :, queries], q[some, :, queries]
            weights = widen((rows * ctx.scale) @ k[some].mT).add_(logits[own]).softmax(-1)
            of_v[some] += weights.to(v.dtype).mT @ g
            # the gradient of a softmax: each weight times how much its own value exceeds the average
            exceeding = widen(g @ v[some].mT) - widen(g * out[some, :, queries]).sum(-1, keepdim=True)
            of_scores = weights.mul_(exceeding)
            of_logits[own] += of_scores.sum_to_size(of_logits[own].shape)
            of_scores = of_scores.to(q.dtype)
            of_q[some, :, queries] = (of_scores @ k[some]).mul_(ctx.scale)
            of_k[some] += (of_scores.mT @ rows).mul_(ctx.scale)
        return of_q, of_k, of_v, of_logits.to(logits.dtype), None


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Sentences and queries, so many at a time that their scores fit a cache."""
    sentences = max(1, _SCORES // (q.size(1) * q.size(2) * k.size(2)))
    queries = min(q.size(2), max(1, _SCORES // (q.size(1) * k.size(2))))
    for first in range(0, q.size(0), sentences):
        for row in range(0, q.size(2), queries):
            yield slice(first, first + sentences), slice(row, row + queries)

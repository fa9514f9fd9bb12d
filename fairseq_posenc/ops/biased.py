"""Attention over long sentences with a bias on a CPU, where torch's fused kernel gives no gradient for a bias."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import widen

#: scores that are held at a time; a few of them fit a core's cache
_SCORES = 2**19
#: scores of one head from which this is no slower than torch's own way and spares most of its memory
_WORTHWHILE = 2**18
#: blocks that a causal attention has at least; the keys after a block are left out
_STEPS = 4


def attention(q: Tensor, k: Tensor, v: Tensor, logits: Tensor | None, dropout: float, causal: bool, scale: float) -> Tensor:
    """scaled_dot_product_attention, by `BiasedAttention` where that is better.

    With `causal`, no query looks at a key after it; logits, if any, are -inf there.
    """
    biased = logits is not None and logits.dtype != torch.bool and not dropout and q.device.type == "cpu"
    if biased and q.size(2) * k.size(2) >= _WORTHWHILE:
        learned = logits.requires_grad and torch.is_grad_enabled()
        if learned or (causal and not torch.is_grad_enabled()):
            return BiasedAttention.apply(q, k, v, logits, causal, scale)
    causal = causal and logits is None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=logits, dropout_p=dropout, is_causal=causal, scale=scale)


class BiasedAttention(torch.autograd.Function):
    """softmax(scale q k^T + logits) v: [B, H, T, D], [B, H, S, D] twice, [B or 1, H or 1, T, S] -> [B, H, T, D].

    Forwards torch's fused kernel; backwards in blocks, whose weights are made again. Nothing of the size
    [B, H, T, S] is kept, where torch's own way keeps several.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, logits: Tensor, causal: bool, scale: float) -> Tensor:
        ctx.causal, ctx.scale = causal, scale
        fixed = logits.detach()  # else torch does not take its fused kernel
        out = torch.empty(*q.shape[:3], v.size(3), dtype=q.dtype)
        for rows, keys in _rows(q.size(2), q.size(2), k.size(2), causal):
            out[:, :, rows] = F.scaled_dot_product_attention(
                q[:, :, rows], k[:, :, keys], v[:, :, keys], attn_mask=fixed[:, :, rows, keys], scale=scale
            )
        ctx.save_for_backward(q, k, v, logits, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, logits, out = ctx.saved_tensors
        of_logits = torch.zeros_like(logits, dtype=widen(logits).dtype)
        of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for some, rows, keys in _blocks(q, k, ctx.causal):
            own = (some if logits.size(0) > 1 else slice(None), slice(None), rows, keys)
            g, queries, known = grad[some, :, rows], q[some, :, rows], k[some, :, keys]
            weights = widen((queries * ctx.scale) @ known.mT).add_(logits[own]).softmax(-1)
            of_v[some, :, keys] += weights.to(v.dtype).mT @ g
            # the gradient of a softmax: each weight times how much its own value exceeds the average
            exceeding = widen(g @ v[some, :, keys].mT) - widen(g * out[some, :, rows]).sum(-1, keepdim=True)
            of_scores = weights.mul_(exceeding)
            of_logits[own] += of_scores.sum_to_size(of_logits[own].shape)
            of_scores = of_scores.to(q.dtype)
            of_q[some, :, rows] = (of_scores @ known).mul_(ctx.scale)
            of_k[some, :, keys] += (of_scores.mT @ queries).mul_(ctx.scale)
        return of_q, of_k, of_v, of_logits.to(logits.dtype), None, None


def _blocks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Sentences, queries, and keys that these look at; so many at a time that their scores fit a cache."""
    sentences = max(1, _SCORES // (q.size(1) * q.size(2) * k.size(2)))
    queries = max(1, _SCORES // (q.size(1) * k.size(2)))
    for first in range(0, q.size(0), sentences):
        for rows, keys in _rows(q.size(2), queries, k.size(2), causal):
            yield slice(first, first + sentences), rows, keys


def _rows(queries: int, size: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, and the keys that these look at."""
    size = min(size, -(-queries // _STEPS)) if causal else size
    for row in range(0, queries, size):
        yield slice(row, row + size), slice(0, min(row + size, keys) if causal else keys)

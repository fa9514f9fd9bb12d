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


def merged(bias: Tensor, allowed: Tensor | None) -> Tensor:
    """The bias, -inf where nobody may look."""
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))


def worthwhile(q: Tensor, k: Tensor, bias: Tensor, causal: bool) -> bool:
    """Whether `BiasedAttention` is better than torch's scaled_dot_product_attention with the merged bias."""
    trained = torch.is_grad_enabled() and bias.requires_grad
    better = trained or (causal and not torch.is_grad_enabled())
    return better and q.device.type == "cpu" and q.size(2) * k.size(2) >= _WORTHWHILE


class BiasedAttention(torch.autograd.Function):
    """softmax(scale q k^T + bias) v where allowed: [B, H, T, D], [B, H, S, D] twice -> [B, H, T, D].

    The bias is [B or 1, H or 1, T, S], `allowed` a bool [B or 1, H or 1, T or 1, S] or None; with `causal` it hides the keys
    after each query. `mask` is the two merged and detached, else torch does not take its fused kernel. Forwards that kernel;
    backwards in blocks, whose weights are made again. Nothing of the size [B, H, T, S] is kept, where torch's own way
    keeps several.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None, mask: Tensor, causal: bool, scale: float
    ) -> Tensor:
        ctx.causal, ctx.scale = causal, scale
        out = q.new_empty(*q.shape[:3], v.size(3))
        for rows, keys in _rows(q.size(2), q.size(2), k.size(2), causal):
            out[:, :, rows] = F.scaled_dot_product_attention(
                q[:, :, rows], k[:, :, keys], v[:, :, keys], attn_mask=mask[:, :, rows, keys], scale=scale
            )
        ctx.save_for_backward(q, k, v, bias, allowed, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, bias, allowed, out = ctx.saved_tensors
        of_bias = torch.zeros_like(bias, dtype=widen(bias).dtype)
        of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for some, rows, keys in _blocks(q, k, ctx.causal):
            own = some, rows, keys
            g, queries, known = grad[some, :, rows], q[some, :, rows], k[some, :, keys]
            scores = widen((queries * ctx.scale) @ known.mT).add_(_part(bias, *own))
            if allowed is not None:
                scores.masked_fill_(~_part(allowed, *own), float("-inf"))
            weights = scores.softmax(-1)
            of_v[some, :, keys] += weights.to(v.dtype).mT @ g
            # the gradient of a softmax: each weight times how much its own value exceeds the average
            exceeding = widen(g @ v[some, :, keys].mT) - widen(g * out[some, :, rows]).sum(-1, keepdim=True)
            of_scores = weights.mul_(exceeding)
            part = _part(of_bias, *own)
            part += of_scores.sum_to_size(part.shape)
            of_scores = of_scores.to(q.dtype)
            of_q[some, :, rows] = (of_scores @ known).mul_(ctx.scale)
            of_k[some, :, keys] += (of_scores.mT @ queries).mul_(ctx.scale)
        return of_q, of_k, of_v, of_bias.to(bias.dtype), None, None, None, None


def _part(x: Tensor, some: slice, rows: slice, keys: slice) -> Tensor:
    """A block of [B or 1, H or 1, T or 1, S]."""
    every = slice(None)
    return x[some if x.size(0) > 1 else every, :, rows if x.size(2) > 1 else every, keys]


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

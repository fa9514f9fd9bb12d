"""Attention over long sentences with a bias on a CPU, where torch's fused kernel gives no gradient for a bias."""

from __future__ import annotations

import itertools
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
    return bias if allowed is None else bias.where(allowed, float("-inf"))


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
        bias, allowed = (mask, None) if mask.shape == bias.shape else (bias, allowed)  # the smaller ones, that layers may share
        ctx.save_for_backward(q, k, v, bias, allowed, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, bias, allowed, out = ctx.saved_tensors
        of_k, of_v, of_bias = (torch.zeros_like(x, dtype=widen(x).dtype) for x in (k, v, bias))
        of_q = torch.empty_like(q)
        average = widen(grad * out).sum(-1, keepdim=True)  # of what the values give, [B, H, T, 1]
        queries = max(1, _SCORES // (q.size(1) * k.size(2)))
        blocks = list(_rows(q.size(2), queries, k.size(2), ctx.causal))
        for b, (rows, keys) in itertools.product(range(q.size(0)), blocks):
            x, y, z, g = (widen(part) for part in (q[b, :, rows], k[b, :, keys], v[b, :, keys], grad[b, :, rows]))
            scores = widen(_part(bias, b, rows, keys)).expand(x.size(0), -1, -1)
            scores = scores.clone() if allowed is None else scores.where(_part(allowed, b, rows, keys), float("-inf"))
            weights = scores.baddbmm_(x, y.mT, alpha=ctx.scale).softmax(-1)  # [H, rows, keys]
            of_v[b, :, keys].baddbmm_(weights.mT, g)
            # the gradient of a softmax: each weight times how much its own value exceeds the average
            of_scores = (g @ z.mT).sub_(average[b, :, rows]).mul_(weights)
            part = _part(of_bias, b, rows, keys)
            part += of_scores.sum_to_size(part.shape)
            of_q[b, :, rows] = (of_scores @ y).mul_(ctx.scale)
            of_k[b, :, keys].baddbmm_(of_scores.mT, x, alpha=ctx.scale)
        return of_q, of_k.to(k.dtype), of_v.to(v.dtype), of_bias.to(bias.dtype), None, None, None, None


def _part(x: Tensor, sentence: int, rows: slice, keys: slice) -> Tensor:
    """[B or 1, H or 1, T or 1, S] -> a block of one sentence, [H or 1, rows or 1, keys]."""
    return x[sentence if x.size(0) > 1 else 0, :, rows if x.size(2) > 1 else slice(None), keys]


def _rows(queries: int, size: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, and the keys that these look at."""
    size = min(size, -(-queries // _STEPS)) if causal else size
    for row in range(0, queries, size):
        yield slice(row, row + size), slice(0, min(row + size, keys) if causal else keys)

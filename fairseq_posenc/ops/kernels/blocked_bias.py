"""Attention with a bias, computed in blocks, for long sentences on a CPU.

On a CPU, the fused kernel of PyTorch has no gradient for a bias. If a bias requires a gradient, PyTorch uses an implementation
without a fused kernel (the fallback). The fallback stores several tensors with the size of the scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import devices
from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: number of scores in a block; a few tensors of this size fit into the cache of a core
_BLOCK_SCORES = 2**19
#: minimum number of scores of a head for which the blocked kernel is at least as fast as the fallback of PyTorch
_PREFER_FROM_SCORES = 2**18
#: minimum number of blocks of a causal attention; each block leaves out the keys after its last query
_FEWEST_CAUSAL_BLOCKS = 4


def merged(bias: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the bias, with -inf where `allowed` is False."""
    return bias if allowed is None else bias.where(allowed, float("-inf"))


def prefer_blocked(q: Tensor, k: Tensor, bias: Tensor, causal: bool) -> bool:
    """Return whether `BiasedAttention` is expected to be at least as fast as torch's scaled_dot_product_attention.

    In this comparison, scaled_dot_product_attention receives the result of `merged` as its mask.
    """
    needs_bias_gradient = torch.is_grad_enabled() and bias.requires_grad
    skips_keys = causal and not torch.is_grad_enabled()
    long_enough = q.size(2) * k.size(2) >= _PREFER_FROM_SCORES
    return (needs_bias_gradient or skips_keys) and devices.on_cpu(q) and long_enough


def lacks_fused_gradient(q: Tensor, bias: Tensor) -> bool:
    """Return whether a bias requires a gradient on a CPU, with queries in float32 or float64.

    For such a bias, PyTorch has no fused kernel, and `plain_attention` is faster than torch's scaled_dot_product_attention.
    In half precision, the result is False.
    """
    full_precision = q.dtype in (torch.float32, torch.float64)
    return devices.on_cpu(q) and full_precision and torch.is_grad_enabled() and bias.requires_grad


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float, scale: float) -> Tensor:
    """Compute softmax(scale q k^T + mask) v, for masks that leave at least one key per query.

    PyTorch's implementation without a fused kernel also searches for queries without keys. This search takes time.
    """
    scores = q @ k.contiguous().transpose(-1, -2)  # copying the keys before the transposition is faster
    weights = scores.mul_(scale).add_(mask).softmax(-1)
    return F.dropout(weights, dropout) @ v


class BiasedAttention(torch.autograd.Function):
    """Compute attention with an additive bias. The backward pass recomputes attention weights block by block.

    Equation: o = w v with w = softmax(scale q k^T + bias), over the keys that are `allowed`. With g the gradient of o, the
        gradient of v_s is sum_t w_ts g_t, and the gradient of bias_ts is e_ts = w_ts (g_t . v_s - g_t . o_t). The gradients of
        q_t and k_s are scale sum_s e_ts k_s and scale sum_t e_ts q_t.
    Shapes: q [B, H, T, D], k and v [B, H, S, D], bias [B or 1, H or 1, T, S], allowed bool [B or 1, H or 1, T or 1, S] or None
        -> [B, H, T, D]. `mask` is the detached result of `merged(bias, allowed)`. `causal` requires a mask that hides the
        keys after each query, and T = S.
    Cost: the scores and attention weights [B, H, T, S] are not stored.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None, mask: Tensor, causal: bool, scale: float
    ) -> Tensor:
        ctx.causal, ctx.scale = causal, scale
        out = q.new_empty(*q.shape[:3], v.size(3))
        for rows, keys in _blocks(q.size(2), q.size(2), k.size(2), causal):
            out[:, :, rows] = F.scaled_dot_product_attention(  # fused, because the mask has no gradient
                q[:, :, rows], k[:, :, keys], v[:, :, keys], attn_mask=mask[:, :, rows, keys], scale=scale
            )
        # if the merged mask has the shape of the bias, store the merged mask. Otherwise, store the bias and `allowed`, because
        # layers can share these two tensors
        bias, allowed = (mask, None) if mask.shape == bias.shape else (bias, allowed)
        ctx.save_for_backward(q, k, v, bias, allowed, out)
        return out

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        q, k, v, bias, allowed, out = ctx.saved_tensors
        grad_k, grad_v, grad_bias = (torch.zeros_like(x, dtype=at_least_float32(x).dtype) for x in (k, v, bias))
        grad_q = torch.empty_like(q)
        # weighted mean of the gradients of the weights, [B, H, T, 1]
        average = at_least_float32(grad * out).sum(-1, keepdim=True)
        queries = max(1, _BLOCK_SCORES // (q.size(1) * k.size(2)))
        blocks = list(_blocks(q.size(2), queries, k.size(2), ctx.causal))
        for b, (rows, keys) in itertools.product(range(q.size(0)), blocks):
            q_block, k_block, v_block, grad_block = (
                at_least_float32(x) for x in (q[b, :, rows], k[b, :, keys], v[b, :, keys], grad[b, :, rows])
            )
            q_block = q_block * ctx.scale
            # product first, then addition in place, because baddbmm_ copies transposed factors
            scores = (q_block @ k_block.mT).add_(_block_of(bias, b, rows, keys))  # [H, rows, keys]
            if allowed is not None:
                scores.masked_fill_(~_block_of(allowed, b, rows, keys), float("-inf"))
            weights = scores.softmax(-1)
            grad_v[b, :, keys] += weights.mT @ grad_block
            grad_scores = (grad_block @ v_block.mT).sub_(average[b, :, rows]).mul_(weights)
            grad_bias_block = _block_of(grad_bias, b, rows, keys)
            grad_bias_block += grad_scores.sum_to_size(grad_bias_block.shape)
            grad_q[b, :, rows] = (grad_scores @ k_block).mul_(ctx.scale)
            grad_k[b, :, keys] += grad_scores.mT @ q_block
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_bias.to(bias.dtype), None, None, None, None


def _block_of(x: Tensor, sentence: int, rows: slice, keys: slice) -> Tensor:
    """Return one block of one sentence as a view: [B or 1, H or 1, T or 1, S] -> [H or 1, rows or 1, keys]."""
    return x[sentence if x.size(0) > 1 else 0, :, rows if x.size(2) > 1 else slice(None), keys]


def _blocks(queries: int, size: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of at most `size` queries, each with the keys to which its queries may attend.

    With `causal`, the size of a block is also limited to a quarter of all queries, rounded up.
    """
    size = min(size, -(-queries // _FEWEST_CAUSAL_BLOCKS)) if causal else size
    for row in range(0, queries, size):
        yield slice(row, row + size), slice(0, min(row + size, keys) if causal else keys)

"""Logarithms of the shares that stick-breaking attention gives to keys."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .derivatives import first_derivative_only
from .outputs import write


class StickBreakingLogits(torch.autograd.Function):
    """Return the logarithm of the share of every key: scores [B, H, T, S] -> the same shape and type.

    Equation: y_ts = a_ts - m_ts b_ts - sum_j m_tj b_tj over all keys j nearer to the query than s, with b = log(1 + exp(a)). For
        the query's own token, y_tt = -sum_j m_tj b_tj over all keys. With g the gradient of y, the gradient of a_ts is
        g_ts - m_ts sigmoid(a_ts) (g_ts + g_tt + sum_j g_tj) over all keys j farther from the query than s.
    Args:
        scores: a, [B, H, T, S].
        breaking: m, whether a key takes a share, bool [B or 1, H, T, S].
        own: whether a key is the query's own token, bool [B or 1, 1, T, S]. For this key, m must be False, and the
            result y_tt is the logarithm of the remaining share. If the queries are T neighbouring keys, `own` can be the index
            of the first of these keys.
        left: the first `left` heads are for keys on the left of the query. In these heads, a key with a larger index is nearer
            to the query. In the other heads, a key with a smaller index is nearer to the query.
    Cost: stores one tensor [B, H, T, S]: the scores, with -inf for keys that take no share. Sums are computed in float32 or
        wider.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, breaking: Tensor, own: Tensor | int, left: int) -> Tensor:
        seen = torch.where(breaking, scores, float("-inf"))
        ctx.save_for_backward(seen)
        ctx.own, ctx.left = own, left
        sums = _wide(scores)
        taken = write(sums[..., 1:], torch.logaddexp, seen, sums.new_zeros(1))  # reads half precision, computes in float32
        total = taken.sum(-1, keepdim=True)
        out = torch.empty_like(scores)
        for heads, sign in _sides(left, scores):
            own_sums = sums[:, heads]
            own_sums[..., :1] = -total[:, heads] if sign > 0 else 0.0
            own_sums.cumsum_(-1)
            # rest: the sum over key s and all nearer keys. With sign 1, the sum is negated
            rest = own_sums[..., :-1] if sign > 0 else own_sums[..., 1:]
            write(out[:, heads], torch.add, scores[:, heads], rest, alpha=sign)
        if isinstance(own, Tensor):
            return torch.where(own, total.neg().to(out.dtype), out)
        out.diagonal(own, -2, -1).copy_(-total.squeeze(-1))
        return out

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        (seen,) = ctx.saved_tensors
        grads, own = _wide(grad), ctx.own
        others, all_keys = grads[..., 1:], grad.sum(-1, keepdim=True, dtype=grads.dtype)
        if isinstance(own, Tensor):
            write(others, torch.mul, grad, ~own)
            of_itself = all_keys - others.sum(-1, keepdim=True)
        else:
            others.copy_(grad)
            of_itself = others.diagonal(own, -2, -1).unsqueeze(-1).clone()
            others.diagonal(own, -2, -1).zero_()
        share, of_scores = seen.sigmoid(), torch.empty_like(grad)
        for heads, sign in _sides(ctx.left, grad):
            # rest: the sum over key s, all farther keys, and the query's own token. With sign -1, the sum is negated
            own_grads = grads[:, heads]
            own_grads[..., :1] = of_itself[:, heads] if sign > 0 else -all_keys[:, heads]
            own_grads = own_grads.cumsum(-1)
            rest = own_grads[..., 1:] if sign > 0 else own_grads[..., :-1]
            write(of_scores[:, heads], torch.addcmul, grad[:, heads], rest, share[:, heads], value=-sign)
        if isinstance(own, Tensor):
            of_scores.masked_fill_(own, 0.0)
        else:
            of_scores.diagonal(own, -2, -1).zero_()
        return of_scores, None, None, None


def _wide(x: Tensor) -> Tensor:
    """Return an uninitialised tensor with one more column than x, in float32 or wider."""
    return x.new_empty(*x.shape[:-1], x.size(-1) + 1, dtype=torch.promote_types(x.dtype, torch.float32))


def _sides(left: int, scores: Tensor) -> Iterator[tuple[slice, int]]:
    """Yield slices of heads, each with a sign.

    The sign is 1 for heads in which a key with a larger index is nearer to the query. The sign is -1 for the other heads.
    """
    if left:
        yield slice(left), 1
    if left < scores.size(1):
        yield slice(left, None), -1

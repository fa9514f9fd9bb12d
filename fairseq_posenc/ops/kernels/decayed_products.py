"""Products of queries and keys, with channels that decay between key and query."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..precision import at_least_float32
from .derivatives import first_derivative_only
from .outputs import write


class Halves(NamedTuple):
    """Describe how a sentence of T tokens is divided recursively into pairs of halves. There are L levels.

    At level l, a half has 2^l tokens. At the end of the sentence, a half may have fewer tokens.
    """

    late: Tensor  # bool [L, 1, 1, T, 1], True for tokens in the second half of a pair of halves
    sign: Tensor  # [L, 1, 1, T, 1], 1 for tokens in the second half, -1 for tokens in the first half
    border: Tensor  # [L T]: index of the last token of the first half. For tokens in the second half, T is added

    @classmethod
    def of(cls, count: int, device: torch.device) -> Halves:
        words = torch.arange(count, device=device)
        size = 1 << torch.arange((count - 1).bit_length(), device=device).unsqueeze(1)
        late = (words & size) > 0  # [L, T]
        border = ((words | (2 * size - 1)) - size).clamp(max=count - 1) + late * count
        late = late[:, None, None, :, None]
        return cls(late, late.float() * 2 - 1, border.flatten())


class DecayedProducts(torch.autograd.Function):
    """Compute sum_i q_ti k_si exp(p_ti - p_si) for keys s up to query t: q [B, H, T, D], k and p [B, H, S, D] -> [B, H, T, S].

    The T queries have the positions of the last T keys. No channel of p increases from one key to the next. Products with later
    keys are 0.

    Equation: y_ts = sum_i q_ti k_si f_tsi with f_tsi = exp(p_ti - p_si). With g the gradient of y, the gradient of q_ti is u_ti
        = sum_s g_ts k_si f_tsi, and the gradient of k_si is w_si = sum_t g_ts q_ti f_tsi. The gradient of p is q u - k w.

    For a key b between s and t, f_tsi = exp(p_ti - p_bi) exp(p_bi - p_si). No exponent is positive, so nothing overflows.

    A sentence is divided recursively into pairs of halves (see `Halves`). For each pair, one matrix product of decayed vectors
    computes all scores of queries in the second half and keys in the first half. In this product, b is the last token of
    the first half. For keys before the first query, b is the first query.
    Args:
        halves: `Halves.of(T)`.
    Cost: stores T D log2(T) factors per sentence and head in float32 or wider. Also stores T D log2(T) elements of decayed
        vectors in the precision of q.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, p: Tensor, halves: Halves) -> Tensor:
        earlier = k.size(2) - q.size(2)
        own_k, own_p = k[:, :, earlier:], p[:, :, earlier:]
        out = q.new_zeros(*q.shape[:3], k.size(2))
        out.diagonal(earlier, -2, -1).copy_((at_least_float32(q) * own_k).sum(-1))
        factors, decayed = _decayed(q, own_k, own_p, halves)
        for level, vectors in enumerate(decayed):
            for scores, (first, second) in zip(_between(out[..., earlier:], level), _pairs(vectors, level)):
                scores.copy_(second @ first.mT)
        before = []
        if earlier:
            border = own_p[:, :, :1]
            before = [(own_p - border).exp_(), (border - p[:, :, :earlier]).exp_()]
            before += [(x * factor).to(q.dtype) for x, factor in zip((q, k[:, :, :earlier]), before)]
            out[..., :earlier] = before[2] @ before[3].mT
        ctx.save_for_backward(q, k, factors, decayed, *before)
        return out

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        q, k, factors, decayed, *before = ctx.saved_tensors
        earlier = k.size(2) - q.size(2)
        grad, grad_before = grad[..., earlier:], grad[..., :earlier]
        of_word = at_least_float32(grad.diagonal(0, -2, -1)).unsqueeze(-1)  # the product of a token with itself does not decay
        of_q, of_k = of_word * k[:, :, earlier:], of_word * q
        for level, (vectors, factor) in enumerate(zip(decayed, factors)):
            parts = (_pairs(x, level) for x in (vectors, factor, of_k, of_q))
            for g, (first, second), (first_factor, second_factor), (keys, _), (_, queries) in zip(_between(grad, level), *parts):
                g = g.contiguous()
                queries.addcmul_(g @ first, second_factor)
                keys.addcmul_(g.mT @ second, first_factor)
        if earlier:
            query_factor, key_factor, queries, keys = before
            of_q.addcmul_(grad_before @ keys, query_factor)
            of_k = torch.cat([(grad_before.mT @ queries) * key_factor, of_k], 2)
        of_p = of_k * -k
        of_p[:, :, earlier:].addcmul_(of_q, q)
        return of_q.to(q.dtype), of_k.to(k.dtype), of_p, None


def _decayed(q: Tensor, k: Tensor, p: Tensor, halves: Halves) -> tuple[Tensor, Tensor]:
    """Return the factors exp(-|p_t - p_b|) of all levels, and decayed vectors: [L, B, H, T, D] each.

    The decayed vector of a token in a second half is the query of the token times the factors. The decayed vector of a token in
    a first half is the key of the token times the factors.
    """
    late, sign, border = halves
    signed = torch.cat([p, -p], 2)[:, :, border].unflatten(2, (-1, p.size(2))).movedim(2, 0)  # [L, B, H, T, D]
    factors = write(p.new_empty(signed.shape), torch.addcmul, signed, sign.to(p.dtype), p).exp_()
    decayed = q.new_empty(signed.shape)
    return factors, write(decayed, torch.where, late, q, k.to(q.dtype)).mul_(factors)


def _pairs(x: Tensor, level: int) -> list[tuple[Tensor, Tensor]]:
    """Return the two halves of each block of 2^(l+1) tokens: [B, H, T, D] -> pairs of [B, H, blocks, 2^l, D].

    If more than 2^l tokens remain after the last block, the list contains one further pair. The first half of this pair has 2^l
    tokens, and the second half has fewer tokens.
    """
    size = 2**level
    blocks = x.size(2) // (2 * size)
    whole, rest = x.split([2 * size * blocks, x.size(2) - 2 * size * blocks], 2)
    found = [whole.unflatten(2, (blocks, 2 * size)).split(size, 3)] if blocks else []
    if rest.size(2) > size:
        found.append(rest.unsqueeze(2).split([size, rest.size(2) - size], 3))
    return found


def _between(scores: Tensor, level: int) -> list[Tensor]:
    """Return, for each pair of halves, the scores of queries in the second half and keys in the first half.

    Shapes: [B, H, T, T] -> list of [B, H, blocks, 2^l, 2^l]. The list has the order of `_pairs`.
    """
    size = 2**level
    blocks = scores.size(3) // (2 * size)
    end = 2 * size * blocks
    found = []
    if blocks:
        whole = scores[:, :, :end, :end].unflatten(3, (blocks, 2 * size)).unflatten(2, (blocks, 2 * size))
        found.append(whole.diagonal(0, 2, 4)[:, :, size:, :size].movedim(-1, 2))
    if scores.size(3) - end > size:
        found.append(scores[:, :, end + size :, end : end + size].unsqueeze(2))
    return found

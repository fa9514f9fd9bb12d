"""Compute products with vectors of a table (the bank), in blocks of queries.

An index selects one vector of the bank for every pair of query and key.

The tensor of all selected vectors, [B, T, S, D], is not stored for the backward pass. The backward pass selects the vectors of
each block again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .. import devices
from ..precision import at_least_float32

#: maximum number of elements of all vectors that a block selects, on a CPU and on an accelerator. With larger blocks, an
#: accelerator needs fewer kernel launches
_BLOCK_ON_CPU, _BLOCK = 2**22, 2**28


class BankScores(torch.autograd.Function):
    """Compute x_t . bank[index_ts]: [B, H, T, D], [P, H or 1, D] and [B, T, S] -> [B, H, T, S].

    Equation: y_ts = x_t . bank[index_ts]. With g the gradient of y, the gradient of x_t is sum_s g_ts bank[index_ts], and the
        gradient of bank[p] is the sum of g_ts x_t over the pairs with index_ts = p.
    """

    @staticmethod
    def forward(ctx, x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(x, bank, index)
        return _scores(x, bank, index)

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, bank, index = ctx.saved_tensors
        return _sums(grad, bank, index), _outer(grad, x, bank, index), None


class BankSums(torch.autograd.Function):
    """Compute sum_s w_ts bank[index_ts]: weights [B, H, T, S], [P, H or 1, D] and [B, T, S] -> [B, H, T, D].

    Equation: y_t = sum_s w_ts bank[index_ts]. With g the gradient of y, the gradient of w_ts is g_t . bank[index_ts], and the
        gradient of bank[p] is the sum of w_ts g_t over the pairs with index_ts = p.
    """

    @staticmethod
    def forward(ctx, weights: Tensor, bank: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(weights, bank, index)
        return _sums(weights, bank, index)

    @staticmethod
    def backward(ctx, grad: Tensor):
        weights, bank, index = ctx.saved_tensors
        return _scores(grad, bank, index), _outer(weights, grad, bank, index), None


def _scores(x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    if not devices.on_cpu(bank):
        return _scores_of_words(x, bank, index)
    out = x.new_empty(*x.shape[:3], index.size(2))
    for rows in _blocks(bank, index):
        vectors = _chosen(bank, index[:, rows])
        if vectors.size(1) == 1:  # all heads of a query in one product: [B, t, H, D] @ [B, t, D, S] -> [B, H, t, S]
            out[:, :, rows] = (x[:, :, rows].transpose(1, 2) @ vectors[:, 0].mT).transpose(1, 2)
        else:
            out[:, :, rows] = (vectors @ x[:, :, rows].unsqueeze(-1)).squeeze(-1)
    return out


def _sums(weights: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    if not devices.on_cpu(bank):
        return _sums_of_words(weights, bank, index)
    out = weights.new_empty(*weights.shape[:3], bank.size(2))
    for rows in _blocks(bank, index):
        vectors = _chosen(bank, index[:, rows])
        if vectors.size(1) == 1:
            out[:, :, rows] = (weights[:, :, rows].transpose(1, 2) @ vectors[:, 0]).transpose(1, 2)
        else:
            out[:, :, rows] = (weights[:, :, rows].unsqueeze(-2) @ vectors).squeeze(-2)
    return out


def _outer(weights: Tensor, x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    """Return one sum for every vector of the bank: the sum of weights_ts x_t over the pairs (t, s) that select this vector.

    The sums are computed in float32 or wider.
    """
    if not devices.on_cpu(bank):
        return _outer_of_words(weights, x, bank, index)
    total = torch.zeros_like(bank, dtype=torch.promote_types(bank.dtype, torch.float32))
    for rows in _blocks(bank, index):
        some, queries = weights[:, :, rows], x[:, :, rows]
        if bank.size(1) == 1:
            products = (some.permute(0, 2, 3, 1) @ queries.transpose(1, 2)).unsqueeze(3)  # [B, t, S, 1, D]
        else:
            products = torch.einsum("bhts,bhtd->btshd", some, queries)
        total.index_add_(0, index[:, rows].flatten(), products.flatten(0, 2).to(total.dtype))
    return total.to(bank.dtype)


def _blocks(bank: Tensor, index: Tensor) -> Iterator[slice]:
    """Yield ranges of queries.

    The selected vectors of a range have at most `_BLOCK_ON_CPU` elements. A range contains at least one query, also if the
    vectors of this query have more elements.
    """
    batch, queries, keys = index.shape
    rows = max(1, _BLOCK_ON_CPU // max(1, batch * keys * bank[0].numel()))
    return (slice(first, first + rows) for first in range(0, queries, rows))


def _chosen(bank: Tensor, index: Tensor) -> Tensor:
    """Select vectors: [P, H or 1, D], [B, t, S] -> [B, H or 1, t, S, D]."""
    return bank[index].permute(0, 3, 1, 2, 4)  # [B, t, S, H or 1, D] -> [B, H or 1, t, S, D]


# --- accelerators -----------------------------------------------------------------------------------------------------
# A block contains words of all sentences. All heads of a word are next to each other in memory, so that no product needs a copy.
# If every head has its own vectors, one product computes all heads, with vectors of all heads. The additional products with
# zeros are faster than a copy of all selected vectors, which separate products for each head would require.


def _scores_of_words(x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    words, vectors = _wide(x, bank.size(1)), bank.flatten(1)  # [B T, H, H D], [P, H D]
    out = x.new_empty(len(words), x.size(1), index.size(2))
    for some, chosen in _blocks_of_words(vectors, index):
        torch.bmm(words[some], vectors[chosen].mT, out=out[some])
    return _split(out, index)


def _sums_of_words(weights: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    words, vectors = _wide(weights, 1), bank.flatten(1)  # [B T, H, S], [P, H D]
    out = weights.new_empty(*words.shape[:2], vectors.size(1))
    for some, chosen in _blocks_of_words(vectors, index):
        torch.bmm(words[some], vectors[chosen], out=out[some])
    if bank.size(1) > 1:  # the part of every head in the sums of this head
        out = out.unflatten(-1, bank.shape[1:]).diagonal(0, 1, 2).mT  # [B T, H, D]
    return _split(out, index)


def _outer_of_words(weights: Tensor, x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    # [B T, S, H], [B T, H, H D], [P, H D]
    words, queries, vectors = _wide(weights, 1).mT, _wide(x, bank.size(1)), bank.flatten(1)
    total: Tensor | None = None
    for some, chosen in _blocks_of_words(vectors, index):
        products = (words[some] @ queries[some]).flatten(0, 1)  # [t S, H D]
        # this operator reads half precision, and adds in float32
        sums = torch.ops.aten.embedding_dense_backward(products, chosen.flatten(), len(bank), -1, False)
        total = sums if total is None else at_least_float32(total).add_(sums)
    return torch.zeros_like(bank) if total is None else total.to(bank.dtype).view_as(bank)


def _blocks_of_words(vectors: Tensor, index: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of the words of all sentences, with their part of the index: [t, S].

    The selected vectors of a range have at most `_BLOCK` elements. A range contains at least one word, also if the vectors of
    this word have more elements.
    """
    index = index.flatten(0, 1)  # [B T, S]
    size = max(1, _BLOCK // max(1, index.size(1) * vectors.size(1)))
    return ((slice(first, first + size), index[first : first + size]) for first in range(0, len(index), size))


def _wide(x: Tensor, heads: int) -> Tensor:
    """Put all heads of a word next to each other: [B, H, T, D] -> [B T, H, D].

    If the vectors of the bank have several heads, expand x to the channels of all heads, with zeros in the channels of the other
    heads: [B, H, T, D] -> [B T, H, H D].
    """
    x = x.transpose(1, 2)  # [B, T, H, D]
    if heads == 1:
        return x.flatten(0, 1)
    wide = x.new_zeros(*x.shape[:3], *x.shape[2:])
    wide.diagonal(0, 2, 3).copy_(x.mT)  # [B, T, D, H]
    return wide.flatten(3).flatten(0, 1)


def _split(x: Tensor, index: Tensor) -> Tensor:
    """Undo `_wide` with one head: [B T, H, D] -> [B, H, T, D]."""
    return x.unflatten(0, index.shape[:2]).transpose(1, 2)

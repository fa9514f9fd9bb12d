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

#: maximum number of elements of all vectors that a block selects, on a CPU and on an accelerator. With larger blocks, an
#: accelerator needs fewer kernel launches
_BLOCK_ON_CPU, _BLOCK = 2**22, 2**27


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


def _blocks(bank: Tensor, index: Tensor) -> Iterator[slice]:
    """Yield ranges of queries.

    The selected vectors of a range have at most `_BLOCK_ON_CPU` or `_BLOCK` elements. A range contains at least one query, also
    if the vectors of this query have more elements.
    """
    batch, queries, keys = index.shape
    block = _BLOCK_ON_CPU if devices.on_cpu(bank) else _BLOCK
    rows = max(1, block // max(1, batch * keys * bank[0].numel()))
    return (slice(first, first + rows) for first in range(0, queries, rows))


def _chosen(bank: Tensor, index: Tensor) -> Tensor:
    """Select vectors: [P, H or 1, D], [B, t, S] -> [B, H or 1, t, S, D]."""
    return bank[index].permute(0, 3, 1, 2, 4)  # [B, t, S, H or 1, D] -> [B, H or 1, t, S, D]


def _as_one_head(x: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    """Expand vectors to the channels of all heads: x [B, H, T, D] -> [B, H, T, H D], and bank [P, H, D] -> [P, 1, H D].

    The new bank concatenates the vectors of all heads. In the new x, the vector of a head is 0 in the channels of the other
    heads. If all heads share one bank, or on a CPU, the arguments are returned unchanged.

    On an accelerator, the additional products with zeros are faster than a copy of all selected vectors. Separate products
    for each head would require this copy.
    """
    if bank.size(1) == 1 or devices.on_cpu(bank):
        return x, bank
    wide = x.new_zeros(*x.shape[:3], *bank.shape[1:])
    wide.diagonal(0, 1, 3).copy_(x.permute(0, 2, 3, 1))  # [B, T, D, H]
    return wide.flatten(3), bank.flatten(1).unsqueeze(1)


def _scores(x: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    x, bank = _as_one_head(x, bank)
    out = x.new_empty(*x.shape[:3], index.size(2))
    for rows in _blocks(bank, index):
        vectors = _chosen(bank, index[:, rows])
        if vectors.size(1) == 1:  # all heads of a query in one product: [B, t, H, D] @ [B, t, D, S] -> [B, H, t, S]
            out[:, :, rows] = (x[:, :, rows].transpose(1, 2) @ vectors[:, 0].mT).transpose(1, 2)
        else:
            out[:, :, rows] = (vectors @ x[:, :, rows].unsqueeze(-1)).squeeze(-1)
    return out


def _sums(weights: Tensor, bank: Tensor, index: Tensor) -> Tensor:
    heads = bank.size(1)
    if heads > 1 and not devices.on_cpu(bank):
        of_all_heads = _sums(weights, bank.flatten(1).unsqueeze(1), index).unflatten(-1, (heads, -1))
        return of_all_heads.diagonal(0, 1, 3).permute(0, 3, 1, 2)  # [B, H, T, D]
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
    shape = bank.shape
    x, bank = _as_one_head(x, bank)
    total = torch.zeros_like(bank, dtype=torch.promote_types(bank.dtype, torch.float32))
    for rows in _blocks(bank, index):
        some, queries = weights[:, :, rows], x[:, :, rows]
        if bank.size(1) == 1:
            products = (some.permute(0, 2, 3, 1) @ queries.transpose(1, 2)).unsqueeze(3)  # [B, t, S, 1, D]
        else:
            products = torch.einsum("bhts,bhtd->btshd", some, queries)
        products, chosen = products.flatten(0, 2), index[:, rows].flatten()
        if devices.on_cpu(bank):
            total.index_add_(0, chosen, products.to(total.dtype))
        else:  # this operator reads half precision, and adds in float32
            gradient = torch.ops.aten.embedding_dense_backward(products.flatten(1), chosen, len(bank), -1, False)
            total += gradient.view_as(total)
    return total.to(bank.dtype).view(shape)

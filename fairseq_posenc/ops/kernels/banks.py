"""Compute products with vectors of a table (the bank), in blocks of queries.

An index selects one vector of the bank for every pair of query and key.

The tensor of all selected vectors, [B, T, S, D], is not stored for the backward pass. The backward pass selects the vectors of
each block again. `BankScores` and `BankSums` use blocks that fit into the cache of a CPU. The other functions are for
accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import at_least_float32
from .derivatives import first_derivative_only

#: maximum number of elements of all vectors that a block selects: on a CPU, and on an accelerator in `BankScoresOfBoth` and in
#: the linked functions. With larger blocks, an accelerator needs fewer kernel launches and more memory
_BLOCK_ON_CPU, _BLOCK, _LINKED_BLOCK = 2**22, 2**28, 2**27


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
    out = x.new_empty(*x.shape[:3], index.size(2))
    for rows in _blocks(bank, index):
        vectors = _chosen(bank, index[:, rows])
        if vectors.size(1) == 1:  # all heads of a query in one product: [B, t, H, D] @ [B, t, D, S] -> [B, H, t, S]
            out[:, :, rows] = (x[:, :, rows].transpose(1, 2) @ vectors[:, 0].mT).transpose(1, 2)
        else:
            out[:, :, rows] = (vectors @ x[:, :, rows].unsqueeze(-1)).squeeze(-1)
    return out


def _sums(weights: Tensor, bank: Tensor, index: Tensor) -> Tensor:
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
# All heads read the same vectors. One product multiplies the vectors of a word with all heads of this word.


class BankScoresOfBoth(torch.autograd.Function):
    """Compute x_t . bank[index_ts] + z_s . bank[index_ts]: [B, H, T, C], [B, H, S, C], [P, C], [B, T, S] -> [B, H, T, S].

    The products of queries and of keys read the same selected vectors. Blocks contain queries of all sentences. No product needs
    a copy of x or z if x has the memory layout [H, T, B, C] or [T, B, H, C], and z has the memory layout [H, B, S, C] or
    [B, S, H, C]. The second derivative is not defined.
    """

    @staticmethod
    def forward(ctx, x: Tensor, z: Tensor, bank: Tensor, index: Tensor) -> Tensor:
        queries, keys = _by_query(x), _by_key(z)
        (length, batch, heads, _), size = queries.shape, keys.size(1)
        of_queries, of_keys = x.new_empty(length, batch, heads, size), x.new_empty(batch, size, heads, length)
        for some, chosen in _parts(index.transpose(0, 1), bank.size(1), _BLOCK):
            vectors = F.embedding(chosen, bank)  # [t, B, S, C]
            torch.bmm(queries[some].flatten(0, 1), vectors.flatten(0, 1).mT, out=of_queries[some].flatten(0, 1))
            torch.bmm(keys.flatten(0, 1), _per_key(vectors).mT, out=of_keys.flatten(0, 1)[..., some])
            del vectors  # before the vectors of the next block are selected
        ctx.save_for_backward(queries, keys, bank, index)
        return of_queries.permute(1, 2, 0, 3) + of_keys.permute(0, 2, 3, 1)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        queries, keys, bank, index = ctx.saved_tensors
        by_query, by_key = _by_query(grad).contiguous(), grad.permute(0, 3, 1, 2).contiguous()  # [T, B, H, S], [B, S, H, T]
        length, batch, heads, width = queries.shape
        of_queries = queries.new_empty(heads, length, batch, width).permute(1, 2, 0, 3)
        of_keys, of_bank = None, None
        for some, chosen in _parts(index.transpose(0, 1), bank.size(1), _BLOCK):
            vectors, rows, columns = F.embedding(chosen, bank), by_query[some].flatten(0, 1), by_key[..., some].flatten(0, 1)
            torch.bmm(rows, vectors.flatten(0, 1), out=of_queries[some].flatten(0, 1))
            of_keys = _plus(of_keys, columns @ _per_key(vectors))  # [B S, H, t] @ [B S, t, C]
            torch.bmm(rows.mT, queries[some].flatten(0, 1), out=vectors.flatten(0, 1))  # the vectors are not read again
            _per_key(vectors).baddbmm_(columns.mT, keys.flatten(0, 1))
            of_bank = _plus(of_bank, _summed(vectors.flatten(0, 2), chosen, bank))
            del vectors
        of_keys = torch.zeros_like(keys) if of_keys is None else of_keys.to(keys.dtype).view_as(keys)
        of_bank = torch.zeros_like(bank) if of_bank is None else of_bank.to(bank.dtype)
        return of_queries.permute(1, 2, 0, 3), of_keys.transpose(1, 2), of_bank, None


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    """Return the sum, in float32 if `total` is not None."""
    return more if total is None else at_least_float32(total).add_(more)


def _summed(vectors: Tensor, index: Tensor, bank: Tensor) -> Tensor:
    """Sum the vectors with the same index: [N, D] -> [P, D]. The operator reads half precision, and adds in float32."""
    return torch.ops.aten.embedding_dense_backward(vectors, index.flatten(), len(bank), -1, False)


def _by_query(x: Tensor) -> Tensor:
    return x.permute(2, 0, 1, 3)  # [B, H, T, C] -> [T, B, H, C]


def _by_key(z: Tensor) -> Tensor:
    return z.transpose(1, 2)  # [B, H, S, C] -> [B, S, H, C]


def _per_key(vectors: Tensor) -> Tensor:
    """Return a view with one matrix per key: [t, B, S, C] -> [B S, t, C]."""
    return vectors.flatten(1, 2).transpose(0, 1)


def _parts(index: Tensor, width: int, most: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of rows of the index, with their part of the index: [N, ...] -> [n, ...].

    The selected vectors of a range have at most `most` elements, with `width` elements per vector. A range contains at least
    one row, also if the vectors of this row have more elements.
    """
    size = max(1, most // max(1, index.shape[1:].numel() * width))
    return ((slice(first, first + size), index[first : first + size]) for first in range(0, len(index), size))


class Maps(NamedTuple):
    """Linear maps of the vectors r of a bank: weights [D, C] and biases [D] for keys and for values."""

    key_weight: Tensor
    key_bias: Tensor
    value_weight: Tensor
    value_bias: Tensor


#: tensors that `linked_scores` passes to `linked_sums`: the arguments of `_LinkedSums` after the weights. The first two tensors
#: are the placeholders of `_LinkedScores`, in the precision of the bank. The last item contains the selected vectors,
#: [B T, S, C], or is None if these vectors have more than `_LINKED_BLOCK` elements
Link = tuple[Tensor | None, ...]


def linked_scores(q: Tensor, maps: Maps, bank: Tensor, index: Tensor) -> tuple[Tensor, Link]:
    """Compute y_ts = q_t . (K r_ts + k), with r_ts = bank[index_ts], and K and k the maps of keys.

    Queries are multiplied with K, so that `linked_scores` and `linked_sums` read the same vectors r_ts. The second derivative
    is not defined.

    Args:
        q: [B, H, T, D].
        bank: [P, C].
        index: [B, T, S].
    Returns: y [B, H, T, S], and the argument `link` of `linked_sums`.
    """
    whole = index.numel() * bank.size(1) <= _LINKED_BLOCK
    vectors = F.embedding(index.flatten(0, 1), bank.detach()) if whole else None
    scores, of_weights, of_sums = _LinkedScores.apply(q, *maps, bank, index, vectors)
    return scores, (of_weights, of_sums, maps.value_weight, maps.value_bias, bank, index, vectors)


def linked_sums(weights: Tensor, link: Link) -> Tensor:
    """Compute y_t = sum_s w_ts (V r_ts + v), with V and v the maps of values: weights [B, H, T, S] -> [B, H, T, D].

    `link` is a result of `linked_scores`. The gradients are correct only if each `link` is used once.
    """
    return _LinkedSums.apply(weights.to(link[0].dtype), *link).to(weights.dtype)


class _LinkedScores(torch.autograd.Function):
    """Compute the scores of `linked_scores`, and two placeholders.

    Equation: g is the gradient of the scores, w are the weights of `linked_sums`, and h is the gradient of its result. The
        gradient of bank[p] is the sum of g_ts K^T q_t + w_ts V^T h_t over the pairs with index_ts = p.
    Placeholders: one product computes both terms of the gradient. The backward pass of `_LinkedSums` therefore returns w and h
        as the gradients of the placeholders. The placeholders have the shapes of w and h, and need no memory. The sums
        over r_ts are not stored. The backward pass computes these sums again, for the gradient of V.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, key_weight: Tensor, key_bias: Tensor, value_weight: Tensor, value_bias: Tensor, bank: Tensor,
        index: Tensor, vectors: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        ctx.save_for_backward(q, key_weight, key_bias, value_weight, bank, index)
        scores = _scores_of_words(q, key_weight, key_bias, bank, index, vectors)
        nothing = q.new_empty(())
        return scores, nothing.expand(scores.shape), nothing.expand(q.shape)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor, weights: Tensor, of_sums: Tensor):
        q, key_weight, key_bias, value_weight, bank, index = ctx.saved_tensors
        words, of_words = _by_word(q), _by_word(of_sums)  # [B T, H, D]
        factors = torch.cat([grad.transpose(1, 2), weights.transpose(1, 2)], 2).flatten(0, 1)  # [B T, 2 H, S]
        mapped = torch.cat([words @ key_weight, of_words @ value_weight], 1)  # [B T, 2 H, C]
        products, of_bank = torch.empty_like(mapped), None
        for some, chosen in _parts(index.flatten(0, 1), bank.size(1), _LINKED_BLOCK):
            vectors = F.embedding(chosen, bank)
            torch.bmm(factors[some], vectors, out=products[some])
            torch.bmm(factors[some].mT, mapped[some], out=vectors)  # the vectors are not read again
            of_bank = _plus(of_bank, _summed(vectors.flatten(0, 1), chosen, bank))
            del vectors  # before the vectors of the next block are selected
        of_bank = torch.zeros_like(bank) if of_bank is None else of_bank.to(bank.dtype)
        (of_mapped, sums), (of_offsets, totals) = (x.chunk(2, 1) for x in (products, factors.sum(-1, keepdim=True)))
        of_q = _split(torch.addcmul(of_mapped @ key_weight.mT, of_offsets, key_bias), index)
        of_key = _of_map(words, of_mapped), _of_map(words, of_offsets).squeeze(1)
        of_value = _of_map(of_words, sums), _of_map(of_words, totals).squeeze(1)
        return of_q, *of_key, *of_value, of_bank, None, None


class _LinkedSums(torch.autograd.Function):
    """Compute `linked_sums`. The backward pass of `_LinkedScores` computes the gradients of the bank and of the maps."""

    @staticmethod
    def forward(
        ctx, weights: Tensor, of_weights: Tensor, of_sums: Tensor, value_weight: Tensor, value_bias: Tensor, bank: Tensor,
        index: Tensor, vectors: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(weights, value_weight, value_bias, bank, index)
        words = _by_word(weights)  # [B T, H, S]
        sums = words.new_empty(*words.shape[:2], bank.size(1))
        for some, chosen in _parts(index.flatten(0, 1), bank.size(1), _LINKED_BLOCK):
            torch.bmm(words[some], _selected(vectors, chosen, bank), out=sums[some])
        totals = words.sum(-1, keepdim=True)
        del words
        return _split(torch.addcmul(sums @ value_weight.mT, totals, value_bias), index)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        weights, *tensors = ctx.saved_tensors
        return _scores_of_words(grad, *tensors), weights, grad, None, None, None, None, None


def _scores_of_words(
    q: Tensor, weight: Tensor, bias: Tensor, bank: Tensor, index: Tensor, vectors: Tensor | None = None
) -> Tensor:
    """Return q_t . (weight r_ts + bias): [B, H, T, D] -> [B, H, T, S]. `vectors` are the vectors r_ts, if they are known."""
    words = _by_word(q)
    mapped, offsets = words @ weight, (words @ bias).unsqueeze(-1)  # [B T, H, C], [B T, H, 1]
    out = words.new_empty(*words.shape[:2], index.size(2))
    for some, chosen in _parts(index.flatten(0, 1), bank.size(1), _LINKED_BLOCK):
        torch.baddbmm(offsets[some], mapped[some], _selected(vectors, chosen, bank).mT, out=out[some])
    return _split(out, index)


def _selected(vectors: Tensor | None, index: Tensor, bank: Tensor) -> Tensor:
    """Return `vectors`, or the vectors that the index selects if `vectors` is None."""
    return F.embedding(index, bank) if vectors is None else vectors


def _of_map(words: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of a map, summed over words and heads: [B T, H, D], [B T, H, C] -> [D, C]."""
    return (words.permute(1, 2, 0) @ grad.transpose(0, 1)).sum(0)


def _by_word(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1)  # [B, H, T, D] -> [B T, H, D]


def _split(x: Tensor, index: Tensor) -> Tensor:
    """Undo `_by_word`: [B T, H, D] -> [B, H, T, D]."""
    return x.unflatten(0, index.shape[:2]).transpose(1, 2)

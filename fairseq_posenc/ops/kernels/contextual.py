"""Products of queries with vectors at contextual positions. A contextual position is a sum of gates."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import devices
from .derivatives import first_derivative_only
from .outputs import sums_from_zero, write

#: arguments of torch's grid_sampler: linear interpolation, border padding, and align_corners=True. With border padding, all
#: positions beyond the last entry use the last entry. With align_corners=True, the first entry has the coordinate -1, and the
#: last entry has the coordinate 1
_LINEAR = 0, 1, True
#: threshold: from this argument on, the derivative of softplus is 1 in float64
_LINEAR_FROM = 40


def contextual_scores(scores: Tensor, products: Tensor, counts: Tensor, from_first: bool) -> Tensor:
    """Return the result of `ContextualScores`. On an accelerator, `InterpolatedScores` computes this result."""
    kernel = ContextualScores if devices.on_cpu(scores) else InterpolatedScores
    return kernel.apply(scores, products, counts, from_first)


class ContextualScores(torch.autograd.Function):
    """Add one of P products to each score: scores [B, H, T, S], products [B, H, T, P] -> [B, H, T, S].

    For each score, a sum of gates selects the product. The sum of gates is a position on the last axis of the products. If the
    position is not an integer, the function interpolates between the two neighbouring products.

    Equation: y_ts = a_ts + (1 - w) c_t,i + w c_t,i+1 with p = min(sum_j m_tj sigmoid(a_tj), P - 1), i = floor(p), w = p - i. The
        sum runs from key s to the last key. With `from_first`, the sum runs from the first key to key s. With g the gradient of
        y, the gradient of p_ts is g_ts (c_t,i+1 - c_t,i).
    Args:
        scores: a, [B, H, T, S], in any precision.
        products: c, [B, H, T, P], in float32 or wider.
        counts: m, [B or 1, 1, T or 1, S], in float32 or wider. m is 0 for keys without a gate, and 1 for other keys.
        from_first: direction of the sum.
    Cost: stores four numbers per score. Two neighbouring products are one complex number, so that one gather reads both.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, products: Tensor, counts: Tensor, from_first: bool) -> Tensor:
        gates = _gates(scores, counts)
        positions = gates.cumsum(-1) if from_first else gates.flip(-1).cumsum_(-1).flip(-1)
        last = positions.new_full((), products.size(-1) - 1)
        # in a sentence of padding only, the position is nan, and becomes the last position
        torch.fmin(positions, last, out=positions)
        index = positions.long()
        weight = positions.frac_()
        following = torch.cat([products[..., 1:], products[..., -1:]], -1)
        pairs = torch.view_as_real(torch.complex(products, following).gather(-1, index))  # [B, H, T, S, 2]
        slope = pairs[..., 1] - pairs[..., 0]
        ctx.save_for_backward(gates, index, weight, slope)
        ctx.form = products.shape, scores.dtype, from_first
        return torch.addcmul(pairs[..., 0], weight, slope).add_(scores).to(scores.dtype)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        gates, index, weight, slope = ctx.saved_tensors
        shape, dtype, from_first = ctx.form
        grad, of_scores, of_products = grad.to(gates.dtype), None, None
        if ctx.needs_input_grad[0]:
            of_positions = grad * slope
            sums = of_positions.flip(-1).cumsum_(-1).flip(-1) if from_first else of_positions.cumsum_(-1)
            of_scores = torch.ops.aten.sigmoid_backward(sums, gates).add_(grad).to(dtype)
        if ctx.needs_input_grad[1]:
            of_products = grad.new_zeros(shape).scatter_add_(-1, index, grad)
            further = grad.new_zeros(shape).scatter_add_(-1, index, grad * weight)  # 0 at the last product
            of_products -= further
            of_products[..., 1:] += further[..., :-1]
        return of_scores, of_products, None, None


class InterpolatedScores(torch.autograd.Function):
    """Compute `ContextualScores` with few kernels: scores, products, counts -> [B, H, T, S], in the precision of the scores.

    torch's grid_sampler interpolates. Every row of products is an image of height 1, and every position is a point of this
    image. The sum from a key to the last key is the sum of all gates minus the sum of the gates before the key.
    Cost: stores two numbers per score. On a CPU, `ContextualScores` is faster for short sentences.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, products: Tensor, counts: Tensor, from_first: bool) -> Tensor:
        gates = _gates(scores, counts)
        sums = sums_from_zero(gates)
        step = 2 / (products.size(-1) - 1)  # the first product is at -1, the last product at 1
        if from_first:
            first, points = sums.new_full((), -1.0), sums[..., 1:]
            write(points, torch.add, first, points, alpha=step)
        else:
            first, points = sums[..., -1:] * step - 1, sums[..., :-1]
            write(points, torch.sub, first, points, alpha=step)
        ctx.save_for_backward(gates, points, products)
        ctx.form = scores.dtype, step, from_first
        read = torch.grid_sampler_2d(_images(products), _grid(points), *_LINEAR).view_as(gates)
        return write(torch.empty_like(gates, dtype=scores.dtype), torch.add, scores, read)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        gates, points, products = ctx.saved_tensors
        dtype, step, from_first = ctx.form
        needs_scores, needs_products = ctx.needs_input_grad[:2]
        scaled = write(torch.empty_like(gates), torch.mul, grad, step)  # `step` is d coordinate / d position
        of_products, of_points = torch.ops.aten.grid_sampler_2d_backward(
            _images(scaled), _images(products), _grid(points), *_LINEAR, (needs_products, True)
        )
        of_scores = None
        if needs_scores:
            sums = sums_from_zero(of_points[..., 0].view_as(gates))
            before, up_to = sums[..., :-1], sums[..., 1:]
            if from_first:
                up_to = write(before, torch.sub, sums[..., -1:].clone(), before)
            of_scores = torch.empty_like(gates, dtype=dtype)
            torch.ops.aten.sigmoid_backward(up_to, gates, grad_input=of_scores)
            of_scores += grad
        return of_scores, of_products.view_as(products).div_(step) if needs_products else None, None, None


class InterpolatedBothWays(torch.autograd.Function):
    """Compute `InterpolatedScores` in both directions: scores [B, H, T, S], products [B, H, T, 2 P] -> [B, H, T, S].

    Keys after the query use the last P products. For these keys, the position is the sum of gates from the query to the key.
    Other keys use the first P products, in reverse order: position 0 has the index P - 1. For these keys, the position is the
    sum of gates from the key to the query. The T queries belong to T consecutive keys, from the key with index `first`.
    Equation: e_s is the sum of the gates before key s. t is the index of the key that belongs to the query. The index of
        the product is P - 1 - e_(t+1) + e_s for s <= t, and P - e_t + e_(s+1) for s > t. h_s is the gradient of the index of
        key s. f_s is the sum of h_1 to h_s. The gradient of the gate of key s is -f_s for s < t, f_S - f_(s-1) for s > t, and
        f_S - 2 f_t for s = t.
    Args:
        counts: as in `ContextualScores`.
        later: whether a key is after the query, bool [T, S].
        first: index of the key that belongs to the first query.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, products: Tensor, counts: Tensor, later: Tensor, first: int) -> Tensor:
        gates = _gates(scores, counts)
        own = gates.diagonal(first, -2, -1)
        kept = own.clone()
        own.mul_(2).add_(1)  # the sums of later keys must be larger by P - e_t - (P - 1 - e_(t+1))
        sums = sums_from_zero(gates)
        own.copy_(kept)
        step = 2 / (products.size(-1) - 1)
        up_to_own = sums.diagonal(first, -2, -1) + kept
        start = ((products.size(-1) / 2 - 1 - up_to_own) * step - 1).unsqueeze(-1)
        points = torch.where(later, sums[..., 1:], sums[..., :-1])
        torch.add(start, points, alpha=step, out=points)
        ctx.save_for_backward(gates, points, products, later)
        ctx.form = scores.dtype, step, first
        read = torch.grid_sampler_2d(_images(products), _grid(points), *_LINEAR).view_as(gates)
        return write(torch.empty_like(gates, dtype=scores.dtype), torch.add, scores, read)

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad: Tensor):
        gates, points, products, later = ctx.saved_tensors
        dtype, step, first = ctx.form
        scaled = write(torch.empty_like(gates), torch.mul, grad, -step)
        of_products, of_points = torch.ops.aten.grid_sampler_2d_backward(
            _images(scaled), _images(products), _grid(points), *_LINEAR, (ctx.needs_input_grad[1], True)
        )
        of_scores = None
        if ctx.needs_input_grad[0]:
            sums = sums_from_zero(of_points[..., 0].view_as(gates))  # sums of -h
            before, up_to = sums[..., :-1], sums[..., 1:]
            total = sums[..., -1:]
            of_gates = torch.where(later, before, up_to).addcmul_(later.to(total.dtype), total, value=-1)
            of_gates.diagonal(first, -2, -1).mul_(2).sub_(total.squeeze(-1))
            of_scores = torch.empty_like(gates, dtype=dtype)
            torch.ops.aten.sigmoid_backward(of_gates, gates, grad_input=of_scores)
            of_scores += grad
        return of_scores, of_products.view_as(products).div_(-step) if of_products is not None else None, None, None, None


def _gates(scores: Tensor, counts: Tensor) -> Tensor:
    """Return counts * sigmoid(scores), in the precision of `counts` or wider."""
    return torch.ops.aten.softplus_backward(counts, scores, 1, _LINEAR_FROM)


def _images(x: Tensor) -> Tensor:
    """Return every row as an image of height 1: [B, H, T, P] -> [B H T, 1, 1, P]."""
    return x.flatten(0, 2)[:, None, None]


def _grid(points: Tensor) -> Tensor:
    """Return the coordinates of points [B, H, T, S]: [B H T, 1, S, 2].

    The second coordinate has no effect, because every image has the height 1.
    """
    return points.flatten(0, 2)[:, None, :, None].expand(-1, -1, -1, 2)

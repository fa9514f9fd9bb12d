"""Matrices with constant diagonals, and sums along diagonals. Each operation is the gradient of the other.

Neither operation needs an index tensor or a scatter. On a CPU, the sums are many times faster than the gradient of `unfold` in
PyTorch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import devices

#: number of rows in a block on a CPU; a block fits into the cache of a core
_ROWS = 64


class Toeplitz(torch.autograd.Function):
    """Expand values of ascending distances s - t to a matrix: [..., T + S - 1] -> [..., T, S]."""

    @staticmethod
    def forward(ctx, values: Tensor, columns: int) -> Tensor:
        return values.unfold(-1, columns, 1).flip(-2)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return DiagonalSums.apply(grad), None


class DiagonalSums(torch.autograd.Function):
    """Sum along the diagonals, in ascending order of the distance s - t: [..., T, S] -> [..., T + S - 1]."""

    @staticmethod
    def forward(ctx, matrix: Tensor) -> Tensor:
        *leading, rows, columns = matrix.shape
        ctx.columns = columns
        if not devices.on_cpu(matrix):
            return diagonal_sums_at_once(matrix)
        sums = matrix.new_zeros(*leading, rows + columns - 1)
        height = min(_ROWS, rows)
        # `block` is a view of `skewed`. The rows of the view are one element shorter than the rows of `skewed`. Each row of the
        # view therefore starts one column before the row above
        skewed = matrix.new_zeros(*leading, height, columns + height)
        block = skewed.flatten(-2)[..., height - 1 : -1].unflatten(-1, (height, -1))[..., :columns]
        for start in range(0, rows, height):
            count = min(height, rows - start)
            block[..., : height - count, :] = 0
            block[..., height - count :, :] = matrix[..., start : start + count, :]
            first, width = rows - start - count, columns + count - 1
            sums[..., first : first + width] += skewed.sum(-2)[..., :width]
        return sums

    @staticmethod
    def backward(ctx, grad: Tensor):
        return Toeplitz.apply(grad, ctx.columns)


def diagonal_sums_at_once(matrix: Tensor) -> Tensor:
    """Compute `DiagonalSums` with two kernels: padding, and a sum over the rows of a view.

    Each row of the view starts one column later than the row before it. One column of the view is therefore one diagonal.
    """
    *leading, rows, columns = matrix.shape
    padded = F.pad(matrix, (rows, 0, 0, 1))  # [..., T + 1, T + S]. The last row contains zeros, which the view reads
    strides = padded.stride()
    skewed = padded.as_strided((*leading, rows, rows + columns - 1), (*strides[:-2], strides[-2] + 1, 1), 1)
    return skewed.sum(-2)

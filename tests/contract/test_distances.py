"""Toeplitz matrices of distances. A matrix is created from one vector.

The gradient of the vector contains the sums of the diagonals, which are computed in blocks of rows.
"""

import pytest
import torch

from fairseq_posenc.ops import distances
from fairseq_posenc.ops.kernels import toeplitz as kernel
from fairseq_posenc.testing.models import close


@pytest.mark.parametrize("block", [1, 3, 4, 64])
@pytest.mark.parametrize("rows, columns", [(1, 1), (1, 6), (6, 1), (4, 4), (7, 5), (5, 8), (12, 12)])
def test_toeplitz_and_its_gradients(monkeypatch, rows, columns, block):
    monkeypatch.setattr(kernel, "_ROWS", block)
    torch.manual_seed(85)
    values = torch.randn(2, 3, rows + columns - 1, dtype=torch.float64, requires_grad=True)
    index = torch.arange(columns) - torch.arange(rows).unsqueeze(1) + rows - 1  # [T, S]
    matrix = distances.toeplitz(values, columns)
    close(matrix, values[..., index], 0)
    weight = torch.randn_like(matrix)
    found, expected = (torch.autograd.grad(x, values, weight)[0] for x in (matrix, values[..., index]))
    close(found, expected, 1e-12)
    assert torch.autograd.gradgradcheck(lambda x: distances.toeplitz(x, columns), values)

"""The kernels that an accelerator takes in place of loops over blocks: on a CPU they give what the loops give."""

import itertools

import pytest
import torch

from fairseq_posenc.core import Positions
from fairseq_posenc.ops.kernels import clipped_distances, toeplitz

SHAPES = list(itertools.product((2, 3, 9), (1, 4, 9, 12), (0, 2, 30), (0, 5)))


@pytest.mark.parametrize("limit", [0, 1, 2, 4, 20])
def test_clipped_distances(limit):
    """Rows, columns and first positions in every order, so that keys lie before, within and after the limit."""
    for rows, columns, first_query, first_key in SHAPES:
        queries, keys = Positions.counted(first_query, rows), Positions.counted(first_key, columns)
        weights = torch.randn(2, 3, rows, columns, dtype=torch.float64)
        table = torch.randn(2, 3, rows, 2 * limit + 1, dtype=torch.float64)
        spread = clipped_distances.SpreadClipped.apply(table, queries, keys, limit)
        assert torch.equal(clipped_distances.spread_at_once(table, queries, keys, limit), spread)
        collected = clipped_distances.CollectClipped.apply(weights, queries, keys, limit)
        torch.testing.assert_close(clipped_distances.collect_at_once(weights, queries, keys, limit), collected)


@pytest.mark.parametrize("rows, columns", [(1, 1), (1, 5), (5, 1), (7, 4), (4, 7), (70, 70)])
def test_diagonal_sums(rows, columns):
    matrix = torch.randn(2, 3, rows, columns, dtype=torch.float64)
    torch.testing.assert_close(toeplitz.diagonal_sums_at_once(matrix), toeplitz.DiagonalSums.apply(matrix))

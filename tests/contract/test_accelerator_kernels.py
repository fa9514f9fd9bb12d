"""The kernels that an accelerator uses instead of loops over blocks. On a CPU, they have the same results as the loops."""

import itertools
import math

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  registers the models
from fairseq_posenc import registry
from fairseq_posenc.bench import actions, models
from fairseq_posenc.core import Positions
from fairseq_posenc.ops import devices, sinusoids
from fairseq_posenc.ops.kernels import clipped_distances, toeplitz

CPU = torch.device("cpu")
SHAPES = list(itertools.product((2, 3, 9), (1, 4, 9, 12), (0, 2, 30), (0, 5)))


@pytest.mark.parametrize("limit", [0, 1, 2, 4, 20])
def test_clipped_distances(limit):
    """Rows, columns and first positions are in every order, so that keys are before, within and after the limit."""
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


def _results(name):
    """Return logits of a training batch with padding, and the gradients of all parameters, in float64 and without dropout."""
    model = models.build(models.Variant.of(name, "model"), "_tiny", 80, CPU, torch.float64).eval()
    source, target = actions.sentences(2, 70, CPU)
    torch.manual_seed(1)
    logits, _ = model(source, None, target, **actions.extras(actions.methods(model), source))
    logits.square().mean().backward()
    return [logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_the_path_of_an_accelerator_gives_the_numbers_of_the_cpu(name, monkeypatch):
    """Sentences have 70 tokens, which is more than one block of every loop over queries.

    An accelerator computes tables in float32.
    """
    expected = _results(name)
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    found = _results(name)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=5e-7)


@pytest.mark.parametrize("positions", [torch.arange(-5000, 5000), torch.tensor([2**30, 10**6]), 3000 * torch.rand(500) - 100])
@pytest.mark.parametrize("grid, base", [("paper", 10000.0), ("fairseq", 10000.0), ("paper", 1.5)])
def test_angles_without_float64(positions, grid, base):
    """Sines and cosines of turns in integers equal the float64 values, up to rounding an angle below pi to float32."""
    exact = sinusoids.frequencies(32, 64, grid, base)
    made = sinusoids.Frequencies(exact)
    assert torch.equal(made(positions), positions.double().unsqueeze(-1) * exact)
    found = made.remainders(positions.unsqueeze(-1))
    assert found.dtype == torch.float32 and found.abs().max() < math.pi + 1 + 1e-6
    for function in (torch.sin, torch.cos):
        torch.testing.assert_close(function(found).double(), function(made(positions)), rtol=0, atol=6e-7)
    assert torch.equal(made.half()(positions), positions.double().unsqueeze(-1) * exact)

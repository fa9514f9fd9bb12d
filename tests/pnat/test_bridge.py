"""The bridges of PNAT, which compute decoder inputs from source vectors.

The bridges are compared with loops that follow the equations, and tested with padding.
"""

import math

import pytest
import torch

from fairseq_posenc.host.models.pnat.bridge import BRIDGES

SOURCES, TARGETS = (7, 3, 5), (4, 9, 5)


def copy(source, length):
    steps = [t * (len(source) - 1) / (length - 1) for t in range(length)]
    return torch.stack([source[round(step)] for step in steps])  # halves are rounded to even, as in torch


def mixed(source, length, logit):
    rows = []
    for t in range(length):
        weights = [math.exp(logit(s, t)) for s in range(len(source))]
        rows.append(sum(weight * row for weight, row in zip(weights, source)) / sum(weights))
    return torch.stack(rows)


EXPECTED = {
    "copy": copy,
    "interpolate": lambda source, n: mixed(source, n, lambda s, t: -((s - t * len(source) / n) ** 2) / 0.3),
    "soft_copy": lambda source, n: mixed(source, n, lambda s, t: -abs(t - s) / 0.3),
}


@pytest.mark.parametrize("name", BRIDGES)
def test_bridge_follows_its_equation_for_every_sentence_of_a_batch(name):
    draw = torch.Generator().manual_seed(1)
    source = torch.randn(3, 8, 4, generator=draw, dtype=torch.float64)  # columns after a sentence must not be read
    out = BRIDGES[name](source, torch.tensor(SOURCES), torch.tensor(TARGETS), 10)
    assert out.shape == (3, 10, 4)
    for row, words, found, length in zip(source, SOURCES, out, TARGETS):
        torch.testing.assert_close(found[:length], EXPECTED[name](row[:words], length), rtol=1e-5, atol=1e-5)


def test_copy_joins_the_ends():
    source = torch.arange(6.0).view(1, 6, 1)
    out = BRIDGES["copy"](source, torch.tensor([6]), torch.tensor([4]), 4)
    assert out.flatten().tolist() == [0, 2, 3, 5]

"""Provide the same sentences for all comparisons."""

import pytest
import torch

from .attentions import BATCH, LENGTH, WIDTH


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


@pytest.fixture
def padding() -> torch.Tensor:
    """Return the padding mask. The second sentence is shorter."""
    return torch.arange(LENGTH).expand(BATCH, -1) >= torch.tensor([[LENGTH], [LENGTH - 4]])

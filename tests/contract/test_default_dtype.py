"""Every method works if torch's default dtype is float64. The logits are finite, and their dtype is float64."""

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.testing.models import build, logits, sentences


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", registry.names())
def test_float64_is_the_default_dtype(name):
    model = build(**registry.card(name).specs)
    source, target = torch.stack(sentences(142, 6, 6)), torch.stack(sentences(143, 5, 5))
    out = logits(model, source, target)
    assert out.dtype == torch.float64 and out.isfinite().all()

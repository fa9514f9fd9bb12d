"""Vectors divided by their length: values and gradients, also of vectors that dropout has set to 0."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_posenc.ops.kernels.unit_length import UnitLength
from fairseq_posenc.testing.models import close


def test_values_and_gradients_are_those_of_torch():
    x, weights = torch.randn(3, 4, 8, dtype=torch.float64, requires_grad=True), torch.randn(3, 4, 8, dtype=torch.float64)
    found = [(y, *torch.autograd.grad((y * weights).sum(), x)) for y in (UnitLength.apply(x), F.normalize(x, dim=-1))]
    for one, other in zip(*found):
        close(one, other, 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_vector_of_zeros_has_a_gradient_of_zeros(dtype):
    x = torch.randn(2, 8).to(dtype)
    x[0] = 0
    x.requires_grad_()
    y = UnitLength.apply(x)
    (y * torch.randn(2, 8)).sum().backward()
    assert y[0].eq(0).all() and x.grad[0].eq(0).all()
    assert x.grad[1].isfinite().all() and x.grad[1].ne(0).any()

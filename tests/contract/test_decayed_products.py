"""Products of queries and keys whose channels decay: results and gradients, also if channels decay fast."""

import pytest
import torch

from fairseq_posenc.ops.kernels.decayed_products import DecayedProducts, Halves

KEYS = 16


def expected_products(q, k, p):
    """Compute y_ts = sum_i q_ti k_si exp(p_ti - p_si) with one factor for every pair: [B, H, T, S]."""
    queries = q.size(2)
    later = torch.ones(queries, KEYS, dtype=torch.bool).triu(1 + KEYS - queries)
    exponents = p[:, :, KEYS - queries :].unsqueeze(3) - p.unsqueeze(2)  # [B, H, T, S, D]
    factors = exponents.masked_fill(later[..., None], float("-inf")).exp()
    return torch.einsum("bhtd,bhsd,bhtsd->bhts", q, k, factors)


@pytest.mark.parametrize("rate", [0.5, 60.0])
@pytest.mark.parametrize("queries", [1, 3, 9, 16])
def test_products_and_gradients(queries, rate):
    """With rate 60, a factor exp(p_ti - p_si) of a key after the query would be infinite in float32."""
    q, k = torch.randn(2, 3, queries, 4), torch.randn(2, 3, KEYS, 4)
    p = -(rate * torch.rand(2, 3, KEYS, 4)).cumsum(2)
    given = [x.requires_grad_() for x in (q, k, p)]
    exact = [x.detach().double().requires_grad_() for x in given]
    found, expected = DecayedProducts.apply(*given, Halves.of(queries, q.device)), expected_products(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(found)
    for one, other in zip(torch.autograd.grad(found, given, weights), torch.autograd.grad(expected, exact, weights.double())):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)

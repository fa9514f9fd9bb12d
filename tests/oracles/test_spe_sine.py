"""SPE's random codes: their mean is correct, and linear attention is correct for the drawn codes."""

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions
from fairseq_posenc.methods.kernel import spe
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import reference

from .cases import HEADS, WIDTH, attention_of, cases, padding_mask

DRAWS, T = 150, 3


def linear(oracle) -> bool:
    return oracle.cases[0][0].get("attention") == "linear"


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.random and not linear(oracle)))
def test_codes_on_average(oracle, options, site):
    attn, place, projections = attention_of(oracle, options, site)
    attn.train()  # codes are drawn again only in training
    query, key = (torch.randn(T, 1, WIDTH, dtype=torch.double) for _ in range(2))
    ids = np.array([0, 1, 6])
    key_ids = ids + 2 if site == "cross" else ids
    with torch.no_grad():
        drawn = [attn.scores(query, key, torch.tensor(ids), torch.tensor(key_ids)).numpy() for _ in range(DRAWS)]
    mean, error = np.mean(drawn, 0), np.std(drawn, 0, ddof=1) / DRAWS**0.5
    inputs = (x.transpose(0, 1).numpy() for x in (query, key))
    expected = reference.scores(oracle, place, projections, *inputs, ids[None], key_ids[None])
    assert (np.abs(mean - expected) < 5 * error).all()
    # The bound is meaningful, because it is smaller than the standard deviation of the expected scores.
    assert 5 * np.median(error) < expected.std()


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("oracle, options, site", cases(linear))
def test_linear_attention(oracle, options, site, padding):
    attn, _, projections = attention_of(oracle, options, site)
    method, mask = attn.position, padding_mask([5, 2, 1], padding)
    key = torch.randn(*mask.shape, WIDTH, dtype=torch.double)
    query, value = (torch.randn(len(mask), 4, WIDTH).double(), torch.randn_like(key)) if site == "cross" else (key, key)
    key_ids = torch.tensor([reference.count(row) for row in mask])
    query_ids = torch.arange(4).expand(len(mask), -1) if site == "cross" else key_ids
    ctx = AttentionContext(Positions(query_ids), Positions(key_ids), causal=site == "decoder", key_padding=mask)
    ctx = ctx.prepared_by(method)  # in evaluation, the codes are the same in every forward pass
    q, k, v = (_heads(x, *projections[name]) for name, x in (("q", query), ("k", key), ("v", value)))
    q, k = method.rotate("query", q, ctx.queries, ctx), method.rotate("key", k, ctx.keys, ctx)
    width = WIDTH // HEADS
    merged = np.zeros((*query.shape[:2], WIDTH))
    for b, head, t in np.ndindex(q.shape[:3]):
        total, norm = np.zeros(width), 0.0
        for s in range(k.size(2)):
            if mask[b, s] or (site == "decoder" and s > t):
                continue
            weight = (_phi(q[b, head, t], width) * _phi(k[b, head, s], width)).sum()
            total, norm = total + weight * v[b, head, s].numpy(), norm + weight
        if norm:
            merged[b, t, head * width :][:width] = total / norm
    out, weights = attn(*(x.transpose(0, 1) for x in (query, key, value)), key_padding_mask=mask)
    assert weights is None
    real = np.ones(merged.shape[:2], bool) if site == "cross" else ~mask.numpy()
    expected = np.array([reference.linear(x, *projections["out"]) for x in merged[real]])
    np.testing.assert_allclose(out.transpose(0, 1).detach().numpy()[real], expected, rtol=0, atol=1e-9)


def _heads(x, weight, bias):
    x = x @ torch.from_numpy(weight).T + torch.from_numpy(bias)
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def _phi(features, width):
    """Return the positive features of the kernel."""
    return np.maximum(features.detach().numpy() * width**-0.25, 0) + 0.001


@pytest.mark.parametrize("size", [1, 3, 4, 256])
@pytest.mark.parametrize("start", [0, 5])
def test_codes_of_blocks_are_those_of_single_positions(monkeypatch, size, start):
    """The codes of consecutive positions (`Positions.counted`) are computed in blocks.

    In each block, the noise is rotated by the angles of the first position of the block. If positions are not created with
    `Positions.counted`, their codes are not computed in blocks.
    """
    monkeypatch.setattr(spe, "_WAVE_BLOCK", size)
    method = parsing.build("spe_sine:exact=false", Dims(WIDTH, HEADS), "encoder")[0].double().eval()
    at = Positions.counted(start, 10)
    ctx = AttentionContext(at, at)
    ctx = ctx.prepared_by(method)
    x, direction = torch.randn(2, HEADS, 10, WIDTH // HEADS, dtype=torch.double, requires_grad=True), torch.randn(10, 64).double()
    found = []
    for given in (at, Positions(at.ids), Positions(at.ids.expand(2, -1))):
        codes = method.rotate("query", x, given, ctx)
        found.append((codes, *torch.autograd.grad((codes * direction).sum(), [x, *method.parameters()])))
    for others in found[1:]:
        for one, other in zip(found[0], others):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("ids, first", [(4, range(0, 7, 4)), (4, range(3, 4)), (3, range(0, 6, 3)), ((2, 5), range(1))], ids=str)
def test_gradients_of_codes(ids, first):
    """Test blocks of consecutive positions, with and without a shorter last block, and different positions for each row."""
    torch.manual_seed(86)
    x = torch.randn(2, 3, 5 if isinstance(ids, tuple) else first[-1] - first[0] + 2, 2).double()
    ids = 9 * torch.rand(ids).double() if isinstance(ids, tuple) else torch.arange(ids).double().unsqueeze(0)
    sines = [torch.randn(3, 2, 2).double() for _ in range(3)]
    given = [part.requires_grad_() for part in (x, *sines, torch.rand(3, 2).double())]
    noise = torch.randn(3, 5, 2, 4).double()
    torch.autograd.gradcheck(lambda *given: spe._Codes.apply(*given, noise, ids, first), given)


def test_codes_have_no_second_derivative():
    """The second derivative is not implemented. Without the error, torch would return a wrong second derivative."""
    method = parsing.build("spe_sine:exact=false", Dims(WIDTH, HEADS), "encoder")[0]
    at = Positions.counted(0, 3)
    ctx = AttentionContext(at, at)
    x = torch.randn(1, HEADS, 3, WIDTH // HEADS, requires_grad=True)
    codes = method.rotate("query", x, at, ctx.prepared_by(method))
    with pytest.raises(PositionError, match="second derivatives are not implemented"):
        torch.autograd.grad(codes.square().sum(), x, create_graph=True)

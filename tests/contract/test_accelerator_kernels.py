"""The kernels that an accelerator uses instead of loops over blocks. On a CPU, they have the same results as the loops."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import fairseq_posenc
import fairseq_posenc.host.plugin
from fairseq_posenc import registry
from fairseq_posenc.attention import multihead
from fairseq_posenc.attention.mask import aligned
from fairseq_posenc.bench import actions, models
from fairseq_posenc.core import Positions
from fairseq_posenc.ops import devices, sinusoids
from fairseq_posenc.ops.kernels import clipped_distances, contextual, toeplitz

CPU = torch.device("cpu")
SHAPES = list(itertools.product((2, 3, 9), (1, 4, 9, 12), (0, 2, 30), (0, 5)))


@pytest.mark.parametrize("limit", [0, 1, 2, 4, 20])
def test_clipped_distances(limit):
    """Test different numbers of queries and keys, and different first positions.

    Distances are then below, within and above the limits of the table.
    """
    for rows, columns, first_query, first_key in SHAPES:
        queries, keys = Positions.counted(first_query, rows), Positions.counted(first_key, columns)
        weights = torch.randn(2, 3, rows, columns, dtype=torch.float64)
        table = torch.randn(2, 3, rows, 2 * limit + 1, dtype=torch.float64)
        spread = clipped_distances.SpreadClipped.apply(table, queries, keys, limit)
        assert torch.equal(clipped_distances.spread_at_once(table, queries, keys, limit), spread)
        collected = clipped_distances.CollectClipped.apply(weights, queries, keys, limit)
        # a gradient can be a transposed view, or a part of another tensor
        for given in (weights, weights.mT.contiguous().mT, torch.cat([0 * weights, weights])[2:]):
            torch.testing.assert_close(clipped_distances.collect_at_once(given, queries, keys, limit), collected)


@pytest.mark.parametrize("rows, columns", [(1, 1), (1, 5), (5, 1), (7, 4), (4, 7), (70, 70)])
def test_diagonal_sums(rows, columns):
    matrix = torch.randn(2, 3, rows, columns, dtype=torch.float64)
    torch.testing.assert_close(toeplitz.diagonal_sums_at_once(matrix), toeplitz.DiagonalSums.apply(matrix))


@pytest.mark.parametrize("from_first", [False, True])
@pytest.mark.parametrize("positions", [2, 3, 40])
def test_contextual_scores(positions, from_first):
    """The gates of some keys are 0. Some sums of gates exceed the last position of a small table.

    No sum exceeds 39, which is the last position of the largest table.
    """
    counts = (torch.rand(2, 1, 9, 30) > 0.2).double()
    given = torch.randn(2, 3, 9, 30, dtype=torch.float64), torch.randn(2, 3, 9, positions, dtype=torch.float64)
    weights, found = torch.randn(2, 3, 9, 30, dtype=torch.float64), []
    for kernel in (contextual.ContextualScores, contextual.InterpolatedScores):
        scores, products = (x.clone().requires_grad_() for x in given)
        out = kernel.apply(scores, products, counts, from_first)
        found.append([out, *torch.autograd.grad(out, (scores, products), weights)])
    for one, other in zip(*found):
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("queries, first", [(9, 0), (4, 0), (4, 2), (3, 6), (1, 8)])
@pytest.mark.parametrize("positions", [2, 3, 40])
def test_contextual_scores_of_both_directions(positions, queries, first):
    """Compare the kernel for both directions with two kernels for one direction each.

    The queries have the positions of all keys, or of one or more consecutive keys.
    """
    later = torch.ones(queries, 9, dtype=torch.bool).triu(first + 1)
    counts = (torch.rand(2, 1, 1, 9) > 0.2).double()
    scores = torch.randn(2, 3, queries, 9, dtype=torch.float64, requires_grad=True)
    left, right = (torch.randn(2, 3, queries, positions, dtype=torch.float64, requires_grad=True) for _ in range(2))
    before = contextual.ContextualScores.apply(scores, left, counts * ~later, False)
    after = contextual.ContextualScores.apply(scores, right, counts * torch.ones(queries, 9).triu(first), True)
    products = torch.cat([left.flip(-1), right], -1)
    found = contextual.InterpolatedBothWays.apply(scores, products, counts, later, first)
    expected, weights = torch.where(later, after, before), torch.randn_like(found)
    torch.testing.assert_close(found, expected)
    given = scores, left, right
    for one, other in zip(torch.autograd.grad(found, given, weights), torch.autograd.grad(expected, given, weights)):
        torch.testing.assert_close(one, other)


def _results(name):
    """Return logits of a training batch with padding, and the gradients of all parameters, in float64 and without dropout.

    Also return whether a table of sines is part of the model.
    """
    model = models.build(models.Variant.of(name, "model"), "_tiny", 80, CPU, torch.float64).eval()
    source, target = actions.sentences(2, 70, CPU)
    torch.manual_seed(1)
    logits, _ = model(source, None, target, **actions.extras(actions.methods(model), source))
    logits.square().mean().backward()
    sines = any(isinstance(module, sinusoids.Frequencies) for module in model.modules())
    return [logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)], sines


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_the_path_of_an_accelerator_gives_the_numbers_of_the_cpu(name, monkeypatch):
    """Sentences have 70 tokens, which is more than one block of every loop over queries.

    An accelerator computes tables of sines in float32.
    """
    expected, sines = _results(name)
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    found, _ = _results(name)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=5e-7 if sines else 1e-7)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("spec", ["cope", "da", "stickbreaking"])
def test_one_attention_whose_scores_are_the_mask_of_the_fused_kernel(spec, site, monkeypatch):
    attention = fairseq_posenc.build_attention(spec, 16, 2, site=site).double().eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, padding = torch.randn(9, 2, 16, dtype=torch.float64), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 7:] = True
    expected, _ = attention(x, x, x, key_padding_mask=padding, need_weights=False)
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    found, _ = attention(x, x, x, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("spec", ["cope", "da", "huang1", "dape", "chang:depthwise=true"])
def test_blocks_of_a_causal_attention_on_an_accelerator(spec, monkeypatch):
    attention = fairseq_posenc.build_attention(spec, 16, 2, site="decoder").double().eval()
    x = torch.randn(9, 2, 16, dtype=torch.float64)
    expected, _ = attention(x, x, x, need_weights=False)
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    for name, number in (("_LONG", 1), ("_BLOCK", 2 * 2 * 9 * 4), ("_FEWEST_BLOCKS", 2)):  # blocks of 4 queries
        monkeypatch.setattr(multihead, name, number)
    found, _ = attention(x, x, x, need_weights=False)
    torch.testing.assert_close(found, expected)


def _gradients(attention, x):
    attention.zero_grad()
    x.grad = None
    out, _ = attention(x, x, x, need_weights=False)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(parameter.grad for parameter in attention.parameters())]


@pytest.mark.parametrize("spec", ["none", "rope", "shaw", "xl", "da"])
def test_one_product_computes_queries_keys_and_values(spec, monkeypatch):
    torch.manual_seed(7)
    attention = fairseq_posenc.build_attention(spec, 16, 2).double()
    x = torch.randn(9, 2, 16, dtype=torch.float64, requires_grad=True)
    expected, products, linear = _gradients(attention, x), [], F.linear
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    monkeypatch.setattr(F, "linear", lambda x, weight, bias: products.append(len(weight)) or linear(x, weight, bias))
    for one, other in zip(_gradients(attention, x), expected):
        torch.testing.assert_close(one, other)
    assert products == [3 * 16, 16]


def _is_aligned(mask):
    return mask.stride(3) == 1 and not any(step % 8 for step in (mask.storage_offset(), *mask.stride()[:3]))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[..., :13], lambda x: x[..., 8:], lambda x: x.expand(5, -1, -1, -1)])
def test_an_aligned_mask_is_not_copied(view):
    given = view(torch.randn(1, 2, 16, 16))
    assert aligned(given) is given and _is_aligned(given)


@pytest.mark.parametrize(
    "view",
    [lambda x: x[..., 1:9], lambda x: x[..., 1:14], lambda x: x[..., :13].clone(), lambda x: x.mT, lambda x: x[..., ::2]],
    ids=["begins at 1", "begins at 1 and is odd", "odd rows", "transposed", "gaps"],
)
def test_a_mask_that_is_not_aligned_is_copied(view):
    given = view(torch.randn(1, 2, 16, 16))
    assert not _is_aligned(given) and _is_aligned(aligned(given)) and torch.equal(aligned(given), given)


@pytest.mark.parametrize("spec", ["xl", "da", "cope", "huang4", "deberta", "t5", "rel_proj", "wavelet", "shaw:values=false"])
@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("length", [9, 13, 16])
def test_masks_are_read_by_the_memory_efficient_kernel(length, site, spec, monkeypatch):
    """Rows of the mask begin at multiples of 8 elements."""
    attention, masks, fused = fairseq_posenc.build_attention(spec, 16, 2, site=site), [], F.scaled_dot_product_attention
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *given, **named: masks.append(given[3]) or fused(*given, **named)
    )
    x = torch.randn(length, 2, 16)
    attention(x, x, x, need_weights=False)
    (mask,) = masks
    assert _is_aligned(mask), mask.stride()


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_hooks_of_a_projection_are_called_on_an_accelerator(kind, monkeypatch):
    attention, calls = fairseq_posenc.build_attention("none", 16, 2), []
    getattr(attention.k_proj, f"register_{kind}")(lambda *_: calls.append(1) and None)
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    _gradients(attention, torch.randn(9, 2, 16, requires_grad=True))
    assert calls == [1]


@pytest.mark.parametrize("positions", [torch.arange(-5000, 5000), torch.tensor([2**30, 10**6]), 3000 * torch.rand(500) - 100])
@pytest.mark.parametrize("grid, base", [("paper", 10000.0), ("fairseq", 10000.0), ("paper", 1.5)])
def test_angles_without_float64(positions, grid, base):
    """Without float64, angles are computed as integers, with 2^64 steps per full turn.

    Sines and cosines then equal the float64 values, up to the rounding of an angle to float32.
    """
    exact = sinusoids.frequencies(32, 64, grid, base)
    made = sinusoids.Frequencies(exact)
    assert torch.equal(made(positions), positions.double().unsqueeze(-1) * exact)
    found = made.remainders(positions.unsqueeze(-1))
    assert found.dtype == torch.float32 and found.abs().max() < math.pi + 1 + 1e-6
    for function in (torch.sin, torch.cos):
        torch.testing.assert_close(function(found).double(), function(made(positions)), rtol=0, atol=6e-7)
    assert torch.equal(made.half()(positions), positions.double().unsqueeze(-1) * exact)

"""BiasedAttention: the kernel for attention with a learned bias, for long sentences on a CPU.

The kernel has the results of torch's attention, and needs less memory than torch's attention.
"""

import pytest
import torch
import torch.nn.functional as F

import fairseq_posenc as posenc
from fairseq_posenc.ops import devices
from fairseq_posenc.ops.kernels import blocked_bias
from fairseq_posenc.testing.models import batch, build_for, close, logits, sentences
from tests.contract.cases import defaults


@pytest.mark.parametrize("held", [15, 60, 2**19], ids=["some queries", "some sentences", "all"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1), (3, 4)], ids=str)
def test_gradients_of_every_block_size(monkeypatch, held, shape):
    monkeypatch.setattr(blocked_bias, "_BLOCK_SCORES", held)
    torch.manual_seed(80)
    q, k, v = (torch.randn(3, 4, n, 6, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
    logits = torch.randn(*shape, 5, 7, dtype=torch.float64)
    logits[..., 0, 3] = float("-inf")
    logits.requires_grad_()
    out = blocked_bias.BiasedAttention.apply(q, k, v, logits, None, logits.detach(), False, 0.3)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=logits, scale=0.3)
    close(out, expected, 1e-12)
    grad = torch.randn_like(out)
    inputs = (q, k, v, logits)
    close(torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad), 1e-12)


@pytest.mark.parametrize("held", [15, 60, 2**19], ids=["some queries", "some sentences", "all"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (1, 1, 5), (3, 4, 5)], ids=str)
def test_masks_beside_the_bias(monkeypatch, held, shape):
    """Masked keys have the same effect as a bias of -inf."""
    monkeypatch.setattr(blocked_bias, "_BLOCK_SCORES", held)
    torch.manual_seed(84)
    q, k, v = (torch.randn(3, 4, n, 6, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
    bias = torch.randn(1, 4, 5, 7, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(*shape, 7) < 0.7
    allowed[..., 2] = True
    inputs, grad, found = (q, k, v, bias), torch.randn(3, 4, 5, 6, dtype=torch.float64), []
    for given in ((bias, allowed), (blocked_bias.merged(bias, allowed), None)):
        out = blocked_bias.BiasedAttention.apply(q, k, v, *given, blocked_bias.merged(*given).detach(), False, 0.3)
        found.append((out, *torch.autograd.grad(out, inputs, grad)))
    close(*found, 1e-12)


@pytest.mark.parametrize("held", [15, 60, 2**19], ids=["some queries", "some sentences", "all"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4)], ids=str)
def test_keys_after_a_block_are_left_out(monkeypatch, held, shape):
    """Results and gradients with `causal` equal the results and gradients without `causal`.

    With `causal`, a block of queries reads only the keys to which at least one query of the block attends.
    """
    monkeypatch.setattr(blocked_bias, "_BLOCK_SCORES", held)
    torch.manual_seed(82)
    q, k, v = (torch.randn(3, 4, 9, 6, dtype=torch.float64, requires_grad=True) for _ in range(3))
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    logits = torch.randn(*shape, 9, 9, dtype=torch.float64).masked_fill(hidden, float("-inf")).requires_grad_()
    inputs, grad, found = (q, k, v, logits), torch.randn(3, 4, 9, 6, dtype=torch.float64), []
    for causal in (True, False):
        out = blocked_bias.BiasedAttention.apply(*inputs, None, logits.detach(), causal, 0.3)
        found.append((out, *torch.autograd.grad(out, inputs, grad)))
    close(*found, 1e-12)
    with torch.no_grad():
        v[:, :, -1] = float("nan")
    assert blocked_bias.BiasedAttention.apply(*inputs, None, logits.detach(), True, 0.3)[:, :, :6].isfinite().all()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("spec, site", [("t5", "encoder"), ("diet_abs", "decoder"), ("huang4", "encoder")])
def test_long_sentences_take_it_to_the_same_numbers(monkeypatch, spec, site, dtype, tolerance):
    """Sentences are padded on the left. The results with and without BiasedAttention are compared."""
    torch.manual_seed(81)
    attention = posenc.build_attention(spec, 16, 2, site=site, max_positions=520).to(dtype)
    x = torch.randn(520, 2, 16, dtype=dtype)
    padding = torch.zeros(2, 520, dtype=torch.bool)
    padding[0, :100] = True
    used, found = [], []
    take = blocked_bias.BiasedAttention.apply
    monkeypatch.setattr(blocked_bias.BiasedAttention, "apply", lambda *args: used.append(1) or take(*args))
    for least in (2**18, 2**30):
        monkeypatch.setattr(blocked_bias, "_PREFER_FROM_SCORES", least)
        attention.zero_grad()
        out, _ = attention(x, x, x, key_padding_mask=padding, need_weights=False)
        out.float().square().sum().backward()
        found.append([out.float(), *(p.grad.float() / p.grad.float().abs().max() for p in attention.position.parameters())])
    assert len(used) == 1
    for one, other in zip(*found):
        close(one, other, tolerance)


@pytest.mark.parametrize("way", ["cpu", "blocks", "accelerator"])
@pytest.mark.parametrize("spec", ["kerple_power", "chang+kerple_power", "huang1+kerple_power", "shaw+kerple_power"])
def test_biases_below_the_range_of_float16(monkeypatch, spec, way):
    """All keys are so far from the last queries that the biases are below -65504.

    The results in float16 must still equal the results in float32.
    """
    torch.manual_seed(85)
    attention = posenc.build_attention(spec, 16, 2, site="cross", max_positions=400)
    method = attention.positions.methods[-1]
    torch.nn.init.constant_(method.power, float(method.raw_power(torch.tensor(1.96))))
    torch.nn.init.constant_(method.rate, 0.5)
    query, key = torch.randn(400, 2, 16), torch.randn(10, 2, 16)
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[0, 6:] = True
    monkeypatch.setattr(blocked_bias, "_PREFER_FROM_SCORES", 1 if way == "blocks" else 2**30)
    if way == "accelerator":
        monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    found = []
    for dtype in (torch.float32, torch.float16):
        x, source = (given.to(dtype).requires_grad_() for given in (query, key))
        out = attention.to(dtype)(x, source, source, key_padding_mask=padding, need_weights=False)[0]
        found.append([y.float() for y in (out, *torch.autograd.grad(out[300:].float().mean(), (x, source)))])
    assert found[0][0].isfinite().all()
    close(found[1], found[0], 0.01)


def taken(case) -> bool:
    """Return whether the tests of the kernel use a method. Its hooks must include `bias` or `content_scores`.

    The result is false for stochastic methods, and for methods with the hook `rescale`, `content_values` or `attend`.
    """
    hooks = case.example.hooks
    return (
        bool(hooks & {"bias", "content_scores"})
        and not hooks & {"rescale", "content_values", "attend"}
        and not case.card.stochastic
    )


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("case", [case for case in defaults() if taken(case)], ids=str)
def test_every_method_takes_it_to_the_same_numbers(monkeypatch, case, padded):
    """The threshold of the kernel is 0, so that the kernel also computes short sentences.

    Compare logits and gradients with and without the kernel. Also compare logits with the logits under `torch.no_grad`.
    """
    found, used = [], []
    take = blocked_bias.BiasedAttention.apply
    monkeypatch.setattr(blocked_bias.BiasedAttention, "apply", lambda *args: used.append(1) or take(*args))
    for least in (0, 2**30):
        monkeypatch.setattr(blocked_bias, "_PREFER_FROM_SCORES", least)
        model = build_for(case).double()
        source = batch(sentences(85, 9, 6 if padded else 9), "left")
        target = batch(sentences(86, 8, 5 if padded else 8), "right")
        before = logits(model, source, target)
        with torch.no_grad():
            close(logits(model, source, target), before, 1e-9)
        before.square().sum().backward()
        found.append([before, *(p.grad for p in model.parameters() if p.grad is not None)])
    method = case.method()
    # whether the method has learned parameters, and does not act at the embeddings
    learned = case.card.count(method.options, method.dims) > 0 and "embed" not in method.hooks
    has_gradient = learned or "content_scores" in method.hooks  # whether an added score term has a gradient
    assert bool(used) == (has_gradient or case.site == "decoder")
    close(*found, 1e-9)

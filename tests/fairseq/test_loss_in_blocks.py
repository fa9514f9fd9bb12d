"""--loss-in-blocks: the results of fairseq's label-smoothed cross-entropy, with less memory traffic and a lower peak memory."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fairseq_posenc.host.plugin  # noqa: F401  registers the criterion
from fairseq_posenc.bench import launches, meta
from fairseq_posenc.core import Refusal
from fairseq_posenc.host.criterions.cross_entropy import CrossEntropyWithLosses
from fairseq_posenc.ops.kernels import token_losses

PAD, WORDS = 1, 50


class Logits(nn.Module):
    """A model whose only parameters are the logits of all words."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.decoder = SimpleNamespace(adaptive_softmax=None)

    def forward(self):
        return self.logits, {}

    def get_normalized_probs(self, net_output, log_probs):
        exact = torch.promote_types(net_output[0].dtype, torch.float32)
        return net_output[0].to(exact).log_softmax(-1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def results(in_blocks, logits, target, smoothing=0.1, prefix=0, reduce=True, accuracy=False):
    """Return the loss, the logged numbers and the gradient."""
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
    criterion = CrossEntropyWithLosses(task, False, smoothing, prefix, accuracy, in_blocks)
    model = Logits(logits)
    ntokens = int(target.ne(PAD).sum())
    loss, _, logged = criterion(model, {"net_input": {}, "target": target, "ntokens": ntokens}, reduce)
    loss.sum().backward()
    return loss.detach(), logged, model.logits.grad


def batch(padded, words=WORDS, dtype=torch.float32):
    torch.manual_seed(1)
    target = torch.randint(2, words, (4, 9))
    if padded:
        target[:2, 5:] = PAD
    return (torch.randn(4, 9, words) * 4).to(dtype), target


@pytest.fixture(params=[1, 7, 10**6])
def tokens_per_block(request, monkeypatch):
    monkeypatch.setattr(token_losses, "_BLOCK_ON_CPU", request.param * WORDS)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("reduce", [True, False])
def test_loss_gradient_and_logged_numbers_are_those_of_fairseq(padded, smoothing, prefix, reduce, tokens_per_block):
    given = *batch(padded), smoothing, prefix, reduce, True
    (loss, logged, grad), (own_loss, own_logged, own_grad) = results(False, *given), results(True, *given)
    assert loss.shape == own_loss.shape and logged.keys() == own_logged.keys()
    torch.testing.assert_close(own_loss, loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(own_grad, grad, rtol=1e-5, atol=1e-6)
    for name, value in logged.items():
        torch.testing.assert_close(torch.as_tensor(own_logged[name]), torch.as_tensor(value), rtol=1e-6, atol=0)
    assert not padded or not own_grad[:2, 5:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_gradient_is_as_exact_as_that_of_fairseq(dtype):
    """Compare the gradients of fairseq and of --loss-in-blocks with the gradient in float64.

    The vocabulary has 32,000 words.
    """
    logits, target = batch(True, 32000, dtype)
    exact = results(False, logits.double(), target)[2]
    errors = [float((results(in_blocks, logits, target)[2].double() - exact).abs().max()) for in_blocks in (False, True)]
    assert errors[1] <= errors[0]


def test_all_targets_are_padding():
    logits, target = batch(False)
    loss, logged, grad = results(True, logits, torch.full_like(target, PAD))
    assert loss == 0 and logged["nll_loss"] == 0 and not grad.any()


def test_an_adaptive_softmax_is_refused():
    model = Logits(batch(False)[0])
    model.decoder.adaptive_softmax = object()
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
    criterion = CrossEntropyWithLosses(task, False, 0.1, loss_in_blocks=True)
    with pytest.raises(Refusal, match="--loss-in-blocks: an adaptive softmax"):
        criterion(model, {"net_input": {}, "target": batch(False)[1], "ntokens": 1})


def counted(in_blocks):
    """Count kernel launches, waits of the host for the device, moved bytes, and peak memory on the meta device.

    The counted step computes the loss of 4,096 tokens in bfloat16 and its gradient. The vocabulary has 32,000 words.
    """
    values = meta.Values()
    logits, target = torch.empty(64, 64, 32000, dtype=torch.bfloat16, device="meta"), values.moved(torch.full((64, 64), 5))
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
    criterion, model = CrossEntropyWithLosses(task, False, 0.1, loss_in_blocks=in_blocks), Logits(logits)

    def step():
        criterion.compute_loss(model, model(), {"target": target})[0].backward()
        model.logits.grad = None

    return launches.count(step, values)


def test_bytes_launches_and_memory_on_an_accelerator():
    plain, own = counted(False), counted(True)
    assert own.moved < 0.83 * plain.moved and own.peak < 0.43 * plain.peak
    assert (plain.launches, own.launches) == (26, 62) and own.waits == plain.waits == 0

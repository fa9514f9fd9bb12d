"""--fast-dropout: the function, the modules that use it, and the option."""

import pytest
import torch
from scipy.stats import binomtest

import fairseq_posenc.host.plugin  # noqa: F401  (imported before fairseq, because it patches fairseq)

# isort: split
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import nn

from fairseq_posenc.host.models.layers.dropout import FastDropout, replace_dropout
from fairseq_posenc.ops import devices
from fairseq_posenc.ops.dropout import fast_dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.75, 2**-16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_share_of_zeros_and_value_of_the_other_elements(p, dtype):
    """The share of zeros is p, by an exact binomial test with a fixed seed."""
    torch.manual_seed(1)
    found = fast_dropout(torch.ones(501, 999, dtype=dtype), p)
    zeros, rate = int((found == 0).sum()), round(p * 2**16) / 2**16
    assert found.dtype == dtype and set(found.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - rate), dtype=dtype).item()}
    assert binomtest(zeros, found.numel(), rate).pvalue > 1e-3


def test_neighbours_are_independent():
    """Four masks come from one random number. The share of neighbours that are both zero is p squared, at every distance."""
    torch.manual_seed(2)
    zero = fast_dropout(torch.ones(400_000), 0.25) == 0
    for distance in range(1, 9):
        both = int((zero[:-distance] & zero[distance:])[::2].sum())
        assert binomtest(both, len(zero[:-distance][::2]), 0.25**2).pvalue > 1e-3, distance


def test_the_gradient_has_the_same_zeros():
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    out = fast_dropout(x, 0.4)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)
    torch.manual_seed(3)
    assert torch.equal(fast_dropout(x, 0.4), out)  # it depends only on the seed


@pytest.mark.parametrize("p", [0.0, 1e-7, 1.0])
def test_probabilities_at_the_ends(p):
    x = torch.randn(1000)
    torch.testing.assert_close(fast_dropout(x, p), x * (1 - p))


def test_a_tensor_without_elements():
    assert fast_dropout(torch.empty(0, 3), 0.5).shape == (0, 3)


def test_modules_are_replaced_only_on_request():
    model = nn.ModuleDict({"a": FairseqDropout(0.5, "A"), "b": nn.ModuleList([FairseqDropout(0.0, "B"), nn.Dropout(0.5)])})
    replace_dropout(model)
    assert [type(module) for module in (model["a"], *model["b"])] == [FastDropout, FastDropout, nn.Dropout]
    assert (model["a"].p, model["a"].module_name, model["b"][0].p) == (0.5, "A", 0.0)
    x = torch.ones(1000)
    assert 300 < int((model["a"](x) == 0).sum()) < 700
    assert torch.equal(model["b"][0](x), x) and torch.equal(model["a"].eval()(x), x)
    model["a"].make_generation_fast_("a", retain_dropout=True)  # dropout in generation
    assert 300 < int((model["a"](x) == 0).sum()) < 700


def test_on_an_accelerator_the_dropout_is_that_of_fairseq(monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda x: False)
    x = torch.ones(100)
    torch.manual_seed(4)
    found = FastDropout(0.5)(x)
    torch.manual_seed(4)
    assert torch.equal(found, FairseqDropout(0.5)(x))


def test_the_option_trains_with_other_masks(fairseq, tmp_path):
    options = ("--dropout", 0.3, "--activation-dropout", 0.2)
    found = {}
    for name, added in (("plain", []), ("fast", ["--fast-dropout"]), ("again", ["--fast-dropout"])):
        result = fairseq.train("posenc_t5_tiny", tmp_path / name, *options, *added)
        assert result.status == 0, result.output
        found[name] = fairseq.state(tmp_path / name / "checkpoint_last.pt")["model"]
    assert found["plain"].keys() == found["fast"].keys()
    equal = lambda one, other: all(torch.equal(found[one][key], found[other][key]) for key in found[one])  # noqa: E731
    assert equal("fast", "again") and not equal("plain", "fast")
    decoded = fairseq.generate(tmp_path / "fast" / "checkpoint_last.pt", "--task", "posenc_translation")
    assert decoded.status == 0, decoded.output

"""TorchScript and ONNX raise a one-line error for every module of this project, in every model."""

import importlib.util

import pytest
import torch
from torch import nn

import fairseq_posenc as posenc
from fairseq_posenc.core import Refusal
from fairseq_posenc.registry import spec
from fairseq_posenc.testing import models
from fairseq_posenc.testing.cases import SMALL


class Host(nn.Module):
    """A layer of another model."""

    def __init__(self):
        super().__init__()
        self.attention = posenc.build_attention("shaw", 16, 4)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


STATES = (torch.randn(5, 2, 16),)
WORDS = (models.batch(models.sentences(1, 5, 3)), torch.tensor([5, 3]), models.batch(models.sentences(2, 4, 4)))
GIVEN = {
    "a layer": lambda: (Host(), STATES),
    "an attention": lambda: (posenc.build_attention("rope", 16, 4), STATES * 3),
    "a model": lambda: (models.build("t5", "alibi"), WORDS),
    "another model": lambda: (models.build("complex", "complex", arch="posenc_complex_transformer_tiny"), WORDS),
}
WAYS = {
    "script": lambda module, inputs: torch.jit.script(module),
    "trace": torch.jit.trace,
    "onnx": lambda module, inputs: torch.onnx.export(module, inputs, "module.onnx", dynamo=False),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_it_is_refused_in_one_line(way, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, inputs = GIVEN[given]()
    with pytest.raises(Refusal) as refused:
        WAYS[way](module.eval(), inputs)
    assert str(refused.value).startswith("fairseq_posenc: TorchScript and ONNX: not supported for modules with position methods")
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_a_method_alone_is_refused():
    (method,) = spec.build("t5", SMALL.at("encoder"), "encoder")
    with pytest.raises(Refusal):
        torch.jit.script(method)


@pytest.mark.filterwarnings("ignore")
def test_the_exporter_of_today_writes_nothing(tmp_path):
    """If libraries for the exporter are missing, torch raises its own error before it reads the module."""
    file = tmp_path / "module.onnx"
    there = all(map(importlib.util.find_spec, ("onnx", "onnxscript")))
    with pytest.raises(Refusal if there else ImportError) as refused:
        torch.onnx.export(Host().eval(), STATES, file, dynamo=True)
    assert "\n" not in str(refused.value) and not file.exists()


def test_what_was_refused_works_on_in_python():
    host = Host().eval()
    before = host(*STATES)
    with pytest.raises(Refusal):
        torch.jit.script(host)
    assert torch.equal(host(*STATES), before)

"""torch.compile: compiled methods have the same results, and every kind of hook can be trained."""

import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.core.hooks import HOOKS, OUTSIDE_ATTENTION
from fairseq_posenc.testing import models
from fairseq_posenc.testing.cases import Case


@pytest.fixture(autouse=True)
def fresh():
    """Remove everything that other tests have compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def attention(spec, site="encoder"):
    """Return an attention module whose parameters differ from their initial values."""
    torch.manual_seed(1)
    found = posenc.build_attention(spec, 16, 4, site=site, max_positions=32)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return found


def test_an_attention_is_one_graph():
    module = attention("rope+t5", "decoder").eval()
    x = torch.randn(9, 2, 16)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    models.close(compiled(x, x, x, need_weights=False)[0], module(x, x, x, need_weights=False)[0])


#: methods whose attention is not one graph, and the reasons
SEVERAL_GRAPHS = {
    "fire": "the largest position decides about a threshold",
    "floater": "the solver runs to the largest position",
}


def _alone() -> list[str]:
    """Return the methods that need no side input and have no hook outside of attention."""
    found = [(name, registry.card(name), registry.method_class(name)._overridden) for name in registry.names()]
    return [name for name, card, hooks in found if not card.side_inputs and not hooks & OUTSIDE_ATTENTION]


@pytest.mark.slow
@pytest.mark.parametrize("name", _alone())
def test_the_attention_of_a_method_is_one_graph(name):
    """The results are also equal with padding, where torch may break the graph.

    torch.compile(fullgraph=True) raises an error for a graph break, in the forward or in the backward pass.
    """
    module = attention(name, registry.card(name).all_sites[0])
    x, padding = torch.randn(9, 2, 16), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :2] = True  # the first word is not in column 0
    whole = torch.compile(module, backend="eager", fullgraph=True)
    if name in SEVERAL_GRAPHS:
        with pytest.raises(torch._dynamo.exc.TorchDynamoException):
            whole(x, x, x, need_weights=False)
        return
    for compiled, mask in ((whole, None), (torch.compile(module, backend="eager"), padding)):
        found = []
        for call in (compiled, module):
            torch.manual_seed(3)  # for methods that draw positions
            found.append(call(x, x, x, key_padding_mask=mask, need_weights=False)[0])
        models.close(*found)
        if compiled is whole:
            found[0].sum().backward()


def _in_a_model() -> list[str]:
    """Return the methods whose whole model is compiled by the next test.

    The list contains all methods in `SEVERAL_GRAPHS`, and all methods that `_alone` does not return. The other methods have an
    attention that compiles to one graph. Of the other methods, the list contains only the first.
    """
    one_graph = [name for name in _alone() if name not in SEVERAL_GRAPHS]
    return [name for name in registry.names() if name not in one_graph[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("name", _in_a_model())
def test_a_compiled_model_gives_the_same(name):
    """The test includes the parts of the model around the method. A step that torch cannot compile runs in Python.

    A method of the encoder does not change how the decoder is compiled, except methods for documents. Of the other methods of the
    encoder, only the first is compiled together with the decoder.
    """
    site = registry.card(name).all_sites[0]
    model = models.build_for(Case(name, site), encoder_layers=1, decoder_layers=1)
    source, target = models.batch(models.sentences(1, 7, 5), "left"), models.batch(models.sentences(2, 6, 6))
    side = models.side_inputs(model, source)
    alone = site == "encoder" and not registry.card(name).documents and name != _in_a_model()[0]

    def result(compiled):
        torch.manual_seed(3)  # for methods that draw positions
        if alone:
            return compiled(source, side_inputs=side)  # everything that the decoder reads
        return compiled(source, None, target, side_inputs=side)[0]

    part = model.encoder if alone else model
    models.close(result(torch.compile(part, backend="eager")), result(part))


def _trained() -> dict[str, str]:
    """Return a dictionary: hook inside attention -> name of the first method that overrides it.

    The method must be usable alone in an attention module.
    """
    found: dict[str, str] = {}
    for name in registry.names():
        cls, card = registry.method_class(name), registry.card(name)
        hooks = cls._overridden
        if not hooks & OUTSIDE_ATTENTION and not card.side_inputs:
            for hook in hooks:
                found.setdefault(hook, name)
    return {hook: found[hook] for hook in HOOKS if hook in found}


#: methods that use another algorithm under torch.compile
COMPILED_DIFFERENTLY = {"cable", "huang3", "pope"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*_trained().values(), *COMPILED_DIFFERENTLY}))
def test_a_compiled_attention_trains_the_same(name):
    module = attention(name, registry.card(name).all_sites[0])
    x, padding = torch.randn(9, 2, 16), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 7:] = True

    def trained(call):
        module.zero_grad()
        torch.manual_seed(3)
        out = call(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]

    models.close(trained(torch.compile(module, backend="aot_eager")), trained(module), 1e-4)


def test_every_hook_of_an_attention_is_trained():
    """The hook `positions` is excluded, because every method with this hook also acts outside of attention."""
    assert set(HOOKS) - OUTSIDE_ATTENTION - set(_trained()) == {"positions"}

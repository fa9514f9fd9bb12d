"""layers=: a method that serves some of the layers."""

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.contract import AttentionContext, PositionError, Positions
from fairseq_posenc.transformer.placement import Placement
from tests.contract import checks_decoding
from tests.contract.cases import SMALL, Case, all_cases, defaults
from tests.contract.models import batch, build, build_for, close, differ, fixed, logits, placements, sentences

BEFORE = {"positions", "draw", "embed"}
LATER = [case for case in all_cases() if case.method().hooks - BEFORE]
#: the defaults, and variants that act in other places or need other projections
DISTINCT = list(
    {(case.name, case.site, case.method().hooks, case.method().projections): case for case in reversed(LATER)}.values()
)


def limited(case: Case, layers: str) -> Case:
    return Case(f"{case.spec}{',' if ':' in case.spec else ':'}layers={layers}", case.site, case.side)


def _inputs():
    return torch.stack(sentences(47, 9, 9)), torch.stack(sentences(48, 8, 8))


@pytest.mark.parametrize("case", LATER, ids=str)
def test_all_layers_listed_is_the_method(case):
    whole, listed = fixed(case), build_for(limited(case, "0-1"))
    text = listed.state_dict()["positions_version"]
    listed.load_state_dict({**whole.state_dict(), "positions_version": text})
    close(logits(listed, *_inputs()), logits(whole, *_inputs()), 0)


@pytest.mark.parametrize("layer", (0, 1))
@pytest.mark.parametrize("case", DISTINCT, ids=str)
def test_other_layers_are_plain(case, layer):
    """The layer that is left out computes what it computes without any method, from parameters of the same names."""
    model, plain = build_for(limited(case, str(layer))), build()
    stack = "encoder" if case.site == "encoder" else "decoder"
    other = 1 - layer
    ours, theirs = (getattr(m, stack).layers[other] for m in (model, plain))
    assert set(ours.state_dict()) == set(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    found = [_layer_output(m, stack, other) for m in (model, plain)]
    close(found[0], found[1])
    placement = placements(model)[case.site]
    assert not any(placement.uses(hook, other) for hook in placement.parts[0].hooks - BEFORE)


def _layer_output(model, stack: str, layer: int) -> torch.Tensor:
    torch.manual_seed(49)
    x = torch.randn(2, 7, SMALL.embed_dim)
    at = Positions.counted(0, 7)
    if stack == "encoder":
        placement = model.encoder.position
        ctx = placement.begin(AttentionContext("encoder", at, at)).at(layer=layer)
        return model.encoder.layers[layer](x, placement, ctx, placement.prepare(ctx)[layer])
    both = (model.decoder.position, model.decoder.cross_position)
    contexts = (AttentionContext("decoder", at, at, causal=True), AttentionContext("cross", at, at))
    contexts = tuple(placement.begin(ctx).at(layer=layer) for placement, ctx in zip(both, contexts))
    additives = tuple(placement.prepare(ctx)[layer] for placement, ctx in zip(both, contexts))
    return model.decoder.layers[layer](x, x.flip(1), both, contexts, additives)[0]


@pytest.mark.parametrize("case", DISTINCT, ids=str)
def test_one_layer_runs_like_any(case):
    checks_decoding.check_incremental(limited(case, "1"))
    checks_decoding.check_padding(limited(case, "1"))


@pytest.mark.parametrize("case", [case for case in defaults() if case not in LATER], ids=str)
def test_refused_before_the_layers(case):
    with pytest.raises(PositionError, match=f"{case.name} enters with the embeddings|{case.name} .*layers") as error:
        registry.build(f"{case.name}:layers=0", SMALL, case.site)
    assert "layers" in str(error.value)


@pytest.mark.parametrize("case", defaults(), ids=str)
def test_missing_layer(case):
    with pytest.raises(PositionError) as error:
        registry.build(f"{case.name}:layers=1/2/5", SMALL, case.site)
    assert "layer 2 does not exist; layers are 0 to 1" in str(error.value)


def test_two_methods_in_turns():
    """Methods that contradict each other may take different layers."""
    spec = "rope:layers=0+spe_sine:layers=1"
    placement = Placement(registry.build(spec, SMALL, "encoder"), SMALL, "encoder")
    assert placement.uses("rotate_query", 0) and placement.uses("rotate_query", 1)
    model, source = build(encoder=spec), batch(sentences(50, 5, 8), "left")
    target = torch.stack(sentences(51, 6, 6))
    differ(logits(model, source, target), logits(build(encoder="rope:layers=0"), source, target), "spe_sine is not used")
    close(logits(model, source[:1, 3:], target[:1]), logits(model, source, target)[:1])

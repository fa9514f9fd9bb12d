"""The option layers=: a method that is used by some of the layers."""

import pytest
import torch

from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, PositionError, PositionMethod, Positions, SideInputs
from fairseq_posenc.core.hooks import BEFORE_LAYERS
from fairseq_posenc.host.models.layers.transformer import Masks
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import checks_decoding
from fairseq_posenc.testing.cases import builds
from fairseq_posenc.testing.models import (
    batch,
    build,
    build_for,
    close,
    differ,
    fixed,
    logits,
    positions_by_site,
    sentences,
    side_inputs,
)  # fmt: skip
from tests.contract.broken import card
from tests.contract.cases import SMALL, Case, all_cases, defaults, marked, registered

#: cases that act inside layers. every_layer=true means all layers. Such cases are not included, because layers= then raises
#: an error
LATER = [case for case in all_cases() if case.example.hooks - BEFORE_LAYERS and "every_layer=true" not in case.spec]
#: one case for every method, site, set of hooks and set of projections
DISTINCT = list({(case.name, case.site, case.example.hooks, case.example.projections): case for case in reversed(LATER)}.values())


def limited(case: Case, layers: str) -> Case:
    return Case(f"{case.spec}{',' if ':' in case.spec else ':'}layers={layers}", case.site, case.side)


def _inputs():
    return torch.stack(sentences(47, 9, 9)), torch.stack(sentences(48, 8, 8))


@pytest.mark.parametrize("case", marked(LATER))
def test_all_layers_listed_is_the_method(case):
    whole, listed = fixed(case), build_for(limited(case, "0-1"))
    text = listed.state_dict()["positions_version"]
    listed.load_state_dict({**whole.state_dict(), "positions_version": text})
    close(logits(listed, *_inputs()), logits(whole, *_inputs()), 0)


@pytest.mark.parametrize("layer", (0, 1))
@pytest.mark.parametrize("case", marked(DISTINCT))
def test_other_layers_are_plain(case, layer):
    """Check the layer that layers= does not select. The layer has the results of a layer in a model without position methods.

    The parameters of both layers have the same names.
    """
    model, plain = build_for(limited(case, str(layer))), build()
    stack = "encoder" if case.site == "encoder" else "decoder"
    other = 1 - layer
    ours, theirs = (getattr(m, stack).layers[other] for m in (model, plain))
    assert set(ours.state_dict()) == set(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    found = [_layer_output(m, stack, other) for m in (model, plain)]
    close(found[0], found[1])
    positions = positions_by_site(model)[case.site]
    assert not any(positions.uses(hook, other) for hook in positions.methods[0].hooks - BEFORE_LAYERS)


def _layer_output(model, stack: str, layer: int) -> torch.Tensor:
    torch.manual_seed(49)
    x = torch.randn(2, 7, SMALL.embed_dim)
    at = Positions.counted(0, 7)
    if stack == "encoder":
        positions = model.encoder.position
        tokens = torch.stack(sentences(49, 7, 7))
        side = SideInputs(side_inputs(model, tokens), positions.side_inputs)
        ctx = positions.at_layer(positions.begin(AttentionContext(at, at, tokens=tokens, side=side)), layer)
        return model.encoder.layers[layer](x, positions, ctx, Masks(positions.masks(ctx)[layer]))
    both = (model.decoder.position, model.decoder.cross_position)
    contexts = (AttentionContext(at, at, causal=True), AttentionContext(at, at, cross=True))
    contexts = tuple(positions.at_layer(positions.begin(ctx), layer) for positions, ctx in zip(both, contexts))
    masks = tuple(Masks(positions.masks(ctx)[layer]) for positions, ctx in zip(both, contexts))
    return model.decoder.layers[layer](x, x.flip(1), both, contexts, masks)[0]


@pytest.mark.parametrize("case", marked(DISTINCT))
def test_one_layer_runs_like_any(case):
    checks_decoding.check_incremental(limited(case, "1"))
    checks_decoding.check_padding(limited(case, "1"))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    "case", [case for case in defaults() if case.site == "decoder" and "bias" in case.example.hooks], ids=str
)
def test_decoding_beside_a_layer_that_reads_content(case, layer):
    """Decoding can compute a bias for several steps at once, but not in a layer with a bias that reads content."""
    spec = f"{case.spec}+cable:layers={layer}"
    if case.name != "cable" and builds(spec, case.site):
        checks_decoding.check_incremental(Case(spec, case.site))


@pytest.mark.parametrize("case", [case for case in defaults() if case not in LATER], ids=str)
def test_refused_before_the_layers(case):
    with pytest.raises(PositionError, match=f"{case.name} acts on the embeddings|{case.name} .*layers") as error:
        parsing.build(f"{case.name}:layers=0", SMALL.at(case.site), case.site)
    assert "layers" in str(error.value)


@pytest.mark.parametrize("case", defaults(), ids=str)
def test_missing_layer(case):
    with pytest.raises(PositionError) as error:
        parsing.build(f"{case.name}:layers=1/2/5", SMALL.at(case.site), case.site)
    assert "there is no layer 2. Expected layers 0 to 1." in str(error.value)


def test_two_methods_in_turns():
    """Two methods that cannot be combined in one layer can act in different layers."""
    spec = "rope:layers=0+spe_sine:layers=1"
    positions = SitePositions(parsing.build(spec, SMALL, "encoder"), SMALL, "encoder")
    assert positions.uses("rotate", 0) and positions.uses("rotate", 1)
    model, source = build(encoder=spec), batch(sentences(50, 5, 8), "left")
    target = torch.stack(sentences(51, 6, 6))
    differ(logits(model, source, target), logits(build(encoder="rope:layers=0"), source, target), "spe_sine is not used")
    close(logits(model, source[:1, 3:], target[:1]), logits(model, source, target)[:1])


def test_refused_for_what_only_draws_and_embeds():
    """No layer uses the noise that a method draws for its embeddings. A choice of layers would have no effect."""

    class DrawsAndEmbeds(PositionMethod):
        card = card("draws_and_embeds", learnable=False, parameters="0", recurring=False, injection="APE", stochastic=True)

        def prepare(self, ctx):
            return torch.rand(())

        def embed(self, x, tokens, ctx):
            return x + ctx.prepared[self]

    with registered(DrawsAndEmbeds), pytest.raises(PositionError, match="layers= has no effect"):
        parsing.build("draws_and_embeds:layers=0", SMALL.at("encoder"), "encoder")

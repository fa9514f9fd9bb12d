"""Methods that change positions in training: in models, together with other methods, and with tables that have too few rows."""

import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import PositionError
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import batch, build, build_for, close, differ, logits, sentences
from tests.contract.cases import SMALL, Case

MOVING = ["shape", "randomised:stride=1", "cape:scale=1.5"]


def texts() -> tuple:
    return torch.stack(sentences(110, 7, 7, 7)), torch.stack(sentences(111, 6, 6, 6))


def seen(model, site: str, source, target) -> torch.Tensor:
    """Return the position ids that the embeddings of a site receive in one forward pass."""
    found = []
    positions = {"encoder": model.encoder.position, "decoder": model.decoder.position}[site]
    (method,) = positions.methods
    embed = method.embed
    method.embed = lambda x, tokens, ctx: found.append(ctx.queries.ids) or embed(x, tokens, ctx)
    logits(model, source, target)
    del method.embed
    (ids,) = found
    return ids


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("spec", MOVING)
def test_a_draw_for_each_sentence_and_each_step(spec, site):
    model = build_for(Case(spec, site)).train()
    torch.manual_seed(112)
    first, second = (seen(model, site, *texts()) for _ in range(2))
    assert first.shape == (3, 7 if site == "encoder" else 6)
    assert len({tuple(row.tolist()) for ids in (first, second) for row in ids}) == 6
    torch.manual_seed(112)
    # fairseq sets the seed at every update, so that a resumed run draws the same numbers
    assert torch.equal(seen(model, site, *texts()), first)
    assert seen(model.eval(), site, *texts()).tolist() == [list(range(first.size(1)))]


def test_both_sides_of_a_pair_share_what_cape_draws():
    model = build(encoder="cape:jitter=0,scale=2", decoder="cape:jitter=0,scale=2").train()
    found = {}
    for site in ("encoder", "decoder"):
        torch.manual_seed(113)
        found[site] = seen(model, site, *texts())
    close(found["encoder"][:, :6], found["decoder"])
    assert len({row[0].item() for row in found["decoder"]}) == 3


def test_shape_draws_for_each_side():
    model = build(encoder="shape", decoder="shape").train()
    found = {}
    for site in ("encoder", "decoder"):
        torch.manual_seed(114)
        found[site] = seen(model, site, *texts())
    assert (found["encoder"][:, 0] != found["decoder"][:, 0]).any()


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("moving", ["shape:", "randomised:stride=1,", "cape:"])
@pytest.mark.parametrize("other", ["rope", "alibi_learned", "t5", "kerple_log"])
def test_beside_methods_that_read_positions(moving, other, site):
    """In evaluation, the other method is unchanged. In training, it receives the drawn positions."""
    plain, moved = build_for(Case(other, site)), build_for(Case(f"{moving}vectors=none+{other}", site))
    first, second = (f"{site}.position.methods.{number}." for number in (0, 1))
    own = {name.replace(first, second): value for name, value in plain.state_dict().items()}
    moved.load_state_dict({**own, "positions_version": moved.positions_version})
    source, target = texts()
    before = logits(plain, source, target)
    close(logits(moved, source, target), before, 0)
    torch.manual_seed(115)
    after = logits(moved.train(), source, target)
    if moving == "shape:":  # a relative method is not changed by the shift, neither in queries nor in keys
        close(after, before, 1e-4)
    else:
        differ(after, before, f"{other} does not meet the positions that {moving} draws")


@pytest.mark.parametrize("spec", ["randomised:stride=1,vectors=none+rope", "shape:vectors=none+alibi"])
def test_in_an_attention_alone(spec):
    attention = posenc.build_attention(spec, 16, 4, site="decoder").double()
    x = torch.randn(6, 2, 16, dtype=torch.double)
    alone = posenc.build_attention(spec.split("+")[1], 16, 4, site="decoder").double().eval()
    alone.load_state_dict({name: value for name, value in attention.state_dict().items()})
    close(attention.eval()(x, x, x)[0], alone(x, x, x)[0])


def refusal(spec: str, site: str = "encoder") -> str:
    dims = SMALL.at(site)
    with pytest.raises(PositionError) as error:
        SitePositions(parsing.build(spec, dims, site), dims, site)
    return str(error.value)


@pytest.mark.parametrize(
    "spec, reach",
    [
        ("shape:shift=7+learned", 71),
        ("learned+randomised", 128),
        ("shape+randomised", 564),
    ],
)
def test_positions_past_a_table_are_refused_before_training(spec, reach):
    message = refusal(spec)
    assert f"maps 64 positions to positions up to {reach}" in message and "supports only 64. Expected" in message
    assert "\n" not in message


def test_a_range_that_fits_the_table_is_allowed():
    model = build(encoder="randomised:factor=1,stride=1,vectors=none+learned").train()
    source, target = texts()
    assert logits(model, source, target).isfinite().all()


def beside_fractions(site: str) -> list:
    names = [name for name in registry.names() if site in registry.card(name).all_sites and name != "cape"]
    marks = [pytest.mark.variant] if site == "decoder" else []
    return [
        pytest.param(Case(f"cape:vectors=none,shift=0,jitter=0+{name}", site), id=f"{name} {site}", marks=marks) for name in names
    ]


@pytest.mark.parametrize("case", [*beside_fractions("encoder"), *beside_fractions("decoder")])
def test_a_method_beside_fractions_is_refused_at_building_or_trains(case, monkeypatch):
    """Combine each method with fractional positions. The model raises an error for methods that count tokens, and for methods
    whose `position_type` is "integer". The latter would otherwise raise an error in training. Other methods can be trained.
    """
    cape, method = parsing.build(case.spec, SMALL.at(case.site), case.site)
    if method.counts_tokens:
        assert f"{method.card.name} counts positions from the tokens" in refusal(case.spec, case.site)
        return
    if method.position_type != "integer":
        assert logits(build_for(case).train(), *texts()).isfinite().all()
        return
    message = refusal(case.spec, case.site)
    assert (
        f"{method.card.name} requires integer positions" in message
        and "cape produces fractional positions" in message
        and "\n" not in message
    )
    monkeypatch.setattr(type(cape), "position_type", "any")
    with pytest.raises(PositionError, match="integer positions only"):
        logits(build_for(case).train(), *texts())


@pytest.mark.parametrize("spec", MOVING)
def test_generation_beyond_the_training_length(spec):
    """A model that is trained on short sentences decodes long sentences.

    Each method has enough positions for long sentences, or computes sinusoids for any position.
    """
    model = build(encoder=spec, decoder=spec)
    source, target = batch(sentences(116, 60, 8), "left"), batch(sentences(117, 60, 8))
    assert logits(model, source, target).isfinite().all()

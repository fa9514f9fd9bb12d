"""Methods that change positions in training: in models, together with other methods, and with tables that have too few rows."""

import contextlib
import dataclasses
from unittest import mock

import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.attention import multihead
from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, PositionError, Positions, Refusal
from fairseq_posenc.methods.documents.unifpe import UnifPE
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import batch, build, build_for, close, differ, logits, sentences
from tests.contract.cases import SMALL, Case

LONGER = "rope_scaled:scaling=dynamic,trained=3"  # the sentences are longer than in training
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
@pytest.mark.parametrize("other", ["rope", "alibi_learned", "t5", "kerple_log", "localness", LONGER])
def test_beside_methods_that_read_positions(moving, other, site):
    """In evaluation, the method `moving` does not change the results of the method `other`.

    In training, `other` receives the positions that `moving` draws.
    """
    plain, moved = build_for(Case(other, site)), build_for(Case(f"{moving}vectors=none+{other}", site))
    first, second = (f"{site}.position.methods.{number}." for number in (0, 1))
    own = {name.replace(first, second): value for name, value in plain.state_dict().items()}
    moved.load_state_dict({**own, "positions_version": moved.positions_version})
    source, target = texts()
    before = logits(plain, source, target)
    close(logits(moved, source, target), before, 0)
    torch.manual_seed(115)
    after = logits(moved.train(), source, target)
    if moving == "shape:":  # queries and keys are shifted equally, so that a relative method does not change
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
    """Combine each method with fractional positions. Building raises an error for methods that count tokens, and for methods
    whose `position_type` is "integer". Other methods can be trained.

    The test then disables the error for "integer". Methods with the hook `positions` still raise an error when the model is
    built. Other methods with "integer" raise an error in training.
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
    if "positions" in method.hooks:
        assert f"{method.card.name} numbers the tokens" in refusal(case.spec, case.site)
        return
    with pytest.raises(PositionError, match="integer positions only"):
        logits(build_for(case).train(), *texts())


@pytest.mark.parametrize("spec", MOVING)
def test_generation_beyond_the_training_length(spec):
    """In evaluation, the logits of long sentences are finite.

    Each method has enough positions for long sentences, or computes sinusoids for any position.
    """
    model = build(encoder=spec, decoder=spec)
    source, target = batch(sentences(116, 60, 8), "left"), batch(sentences(117, 60, 8))
    assert logits(model, source, target).isfinite().all()


# -- methods that count tokens or keys, next to methods that change positions ----------------------------------------------


def pair_of_models(moving: str, spec: str, site: str) -> tuple:
    """Return a model with `spec`, and a model with `moving+spec`. The parameters of `spec` are equal in both models."""
    plain, both = build_for(Case(spec, site)), build_for(Case(f"{moving}+{spec}", site))
    first, second = (f"{site}.position.methods.{number}." for number in (0, 1))
    own = {name.replace(first, second): value for name, value in plain.state_dict().items()}
    both.load_state_dict({**own, "positions_version": both.positions_version})
    return plain, both


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ["learned", "tupe_abs", "diet_abs", "dufter_abs", "synthesizer_random"])
def test_unifpe_in_the_last_block_trains_with_padding(name, site, monkeypatch):
    """The last token has the last position of the table. Padding after this token has no row in the table."""
    monkeypatch.setattr(UnifPE, "_offsets", lambda self, lengths: self.range - lengths)
    model = build_for(Case(f"unifpe:vectors=none,plain=0+{name}", site)).train()
    source, target = sentences(118, 9, 5), sentences(119, 9, 5)
    together = logits(model, batch(source), batch(target))
    close(together[1:, :5], logits(model, source[1][None], target[1][None]))


def test_padding_stays_after_the_sentence_that_unifpe_moves(monkeypatch):
    """Padding has later positions than the words of its sentence, because methods compare positions of queries and keys.

    In causal attention, padding is therefore a later key, to which the words do not attend.
    """
    monkeypatch.setattr(UnifPE, "_offsets", lambda self, lengths: self.range - lengths)
    model = build(decoder="unifpe:plain=0+log_length").train()
    source, target = sentences(118, 9, 5), sentences(119, 9, 5)
    close(logits(model, batch(source), batch(target))[1:, :5], logits(model, source[1][None], target[1][None]))


def decoder_in_training(moving: str, name: str):
    """Return a model with `moving` and the method, or None if they are refused together or if the method draws numbers itself."""
    try:
        model = build(decoder=f"{moving}+{name}").train()
    except (PositionError, Refusal):
        return None
    alone, found = build(decoder=name).train(), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(logits(alone, *texts()))
    return model if torch.equal(*found) else None


DECODER = [name for name in registry.names() if "decoder" in registry.card(name).all_sites]


@pytest.mark.parametrize("name", DECODER)
def test_the_last_word_and_its_padding_may_have_one_position(name, monkeypatch):
    """The last word has the last position of the table of `learned`, and padding after it has the same position."""
    monkeypatch.setattr(UnifPE, "_offsets", lambda self, lengths: self.range - lengths)
    model = decoder_in_training("unifpe:vectors=none,plain=0+learned", name)
    if model is not None:
        source, target = sentences(118, 9, 5), sentences(119, 9, 5)
        close(logits(model, batch(source), batch(target))[1:, :5], logits(model, source[1][None], target[1][None]))


@pytest.mark.parametrize("name", DECODER)
def test_no_later_word_is_read_if_neighbours_exchange_positions(name):
    model = decoder_in_training("cape:jitter=4", name)
    if model is None:
        return
    (source,), (target,) = sentences(118, 9), sentences(119, 9)
    changed = target.clone()
    changed[5:] = target[5:].flip(0)
    assert not torch.equal(changed, target)
    for seed in range(10):
        found = []
        for words in (target, changed):
            torch.manual_seed(seed)
            found.append(logits(model, source[None], words[None])[0, :5])
        close(*found)


def test_the_tests_above_build_most_methods():
    for moving, least in (("unifpe:vectors=none,plain=0+learned", 70), ("cape:jitter=4", 45)):
        assert sum(decoder_in_training(moving, name) is not None for name in DECODER) >= least


@pytest.mark.parametrize("spec", ["unifpe+randomised", "randomised+unifpe", "randomised:factor=1+randomised:factor=1"])
def test_randomised_refuses_other_methods_that_change_positions(spec):
    message = refusal(spec)
    assert "randomised numbers the tokens" in message and "Expected" in message and "\n" not in message
    assert all(part.split(":")[0] in message for part in spec.split("+"))


@pytest.mark.parametrize("moving", ["segment_shift:vectors=none,shift=8", "shape:vectors=none,start=K", "unifpe"])
@pytest.mark.parametrize("name", ["ldpe", "lrpe"])
def test_output_lengths_in_tokens_refuse_other_positions(name, moving):
    """With lengths in tokens, `ldpe` and `lrpe` read position ids. With lengths in characters, they do not."""
    for spec in (f"{moving}+{name}", f"{name}+{moving}"):
        assert f"{name} counts positions from the tokens" in refusal(spec, "decoder")
    plain, both = pair_of_models(moving, f"{name}:unit=char", "decoder")
    source, target = torch.stack(sentences(120, 7)), torch.stack(sentences(121, 6))
    lengths = {"target_length": torch.tensor([10])}
    found = [model(source, None, target, side_inputs=lengths)[0] for model in (both, plain)]
    if "vectors=none" in moving:
        close(*found, 0)
    else:
        differ(*found, f"{moving} has no effect")


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("spec", ["localness", "localness:centre=query,window=layer", LONGER])
def test_the_first_position_is_not_the_number_of_keys(spec, site):
    plain, both = pair_of_models("shape:vectors=none,start=K", spec, site)
    source, target = batch(sentences(122, 9, 5), "left"), batch(sentences(123, 9, 5))
    real = target.ne(1)
    close(logits(both, source, target)[real], logits(plain, source, target)[real], 1e-4)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_localness_measures_in_positions(site):
    """The positions of a document have gaps, so that the last position is larger than the number of keys.

    The centre of a window is computed from the positions, not from the number of keys.
    """
    model = build_for(Case("segment_shift:vectors=none,shift=8+localness", site))
    side = model.encoder if site == "encoder" else model.decoder
    method, found = side.position.methods[1], []
    with torch.no_grad():
        method.centre.zero_(), method.window.zero_()
    scores = method.content_scores
    method.content_scores = lambda q, k, ctx: found.append(scores(q, k, ctx)) or found[-1]
    tokens = torch.tensor([[5, 2, 6, 7, 8]])  # the positions are 0, 1, 10, 11 and 12
    logits(model, tokens, tokens)
    places = torch.tensor([0.0, 1, 10, 11, 12])
    size = torch.full((5, 1), 13.0) if site == "encoder" else places.unsqueeze(-1) + 1
    close(found[0][0, 0], -2 * ((places - (size - 1) / 2) / (size / 2 + 0.1)) ** 2)


@pytest.mark.parametrize("spec", ["window:width=2", "window:width=2,dilation=2", "t5"])
def test_distances_of_fractional_positions_are_rounded(spec):
    """Positions that cape moves a little have the windows and the buckets of whole positions."""
    (method,) = parsing.build(spec, SMALL.at("encoder"), "encoder")
    found = []
    for ids in (torch.arange(5.0), torch.tensor([0.0, 1.001, 1.999, 3.0, 4.001])):
        at = Positions(ids.unsqueeze(0))
        ctx = AttentionContext(at, at)
        found.append((method.mask if "mask" in method.hooks else method.bias)(ctx).expand(1, -1, -1, -1))
    assert torch.equal(*found)


@pytest.mark.parametrize("spec", ["wall", "stickbreaking"])
def test_blocks_of_a_decoder_that_reads_all_keys(spec):
    model = build_for(Case(spec, "decoder")).double()
    source, target = texts()
    found = []
    for limits in ({}, {"_BLOCK_ON_CPU": 3 * SMALL.num_heads * 6, "_FEWEST_BLOCKS": 0, "_LONG": 0}):
        with mock.patch.multiple(multihead, **limits) if limits else contextlib.nullcontext():
            found.append(model.decoder(target, model.encoder(source), full_context_alignment=True)[0])
    close(*found, 1e-9)


def test_a_stack_without_layers():
    dims = dataclasses.replace(SMALL, num_layers=0)
    assert parsing.build("floater:share=none", dims.at("encoder"), "encoder")

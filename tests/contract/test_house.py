"""Encoder-decoder models: decoders without causal mask, losses of methods, options of layers, and side inputs."""

import copy
from types import SimpleNamespace

import pytest
import torch

from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import PositionError, Refusal, SideInput
from fairseq_posenc.core.side import declared_by
from fairseq_posenc.host.criterions.cross_entropy import CrossEntropyWithLosses
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import checks_decoding
from fairseq_posenc.testing.models import PAD, batch, build, build_for, close, differ, encode, logits, sentences
from tests.contract import probes
from tests.contract.cases import SMALL, Case, registered

# --- decoders that are not causal ------------------------------------------------------------------------------------

#: methods whose parameters or masks differ between causal and bidirectional attention
SIDED = ["t5", "at5", "alibi_learned", "tupe_rel", "cope", "forgetting", "gaussian", "disan", "cable", "shaw", "rope", "diet_rel"]


def bidirectional(spec: str):
    """Return a model whose decoder attends to all target words, as in a non-autoregressive model.

    All other parts equal the parts of a causal model.
    """
    model = build(decoder="none")
    dims = SMALL
    model.decoder.position = SitePositions(parsing.build(spec, dims, "decoder"), dims, "decoder").eval()
    return model


@pytest.mark.parametrize("spec", SIDED)
def test_a_bidirectional_decoder_has_the_parameters_of_an_encoder(spec):
    decoder = parsing.build(spec, SMALL, "decoder")[0]
    encoder = parsing.build(spec, SMALL.at("encoder"), "encoder")[0]
    causal = parsing.build(spec, SMALL.at("decoder"), "decoder")[0]
    shapes = [{name: p.shape for name, p in method.named_parameters()} for method in (decoder, encoder, causal)]
    assert shapes[0] == shapes[1]
    counts = [sum(p.numel() for p in method.parameters() if p.requires_grad) for method in (decoder, causal)]
    assert counts == [method.card.count(method.options, method.dims) for method in (decoder, causal)]


# gaussian is left out, because its attention modules have no projections of queries and keys. With multi_dimensional=true,
# the attention modules of disan also have no such projections, so disan is left out, too
@pytest.mark.parametrize("spec", [spec for spec in SIDED if spec not in ("gaussian", "disan")])
def test_a_bidirectional_decoder_sees_later_words_and_no_padding(spec):
    model = bidirectional(spec)
    source, targets = torch.stack(sentences(90, 6, 6)), sentences(91, 7, 4)
    found = logits(model, source, batch(targets))
    close(found[1, :4], logits(model, source[1:], targets[1][None])[0])
    other = targets[0].clone()
    other[-1] = 4 + (other[-1] - 3) % 15
    differ(logits(model, source[:1], other[None])[0, 0], found[0, 0], "the first word does not see the last")


# --- losses ----------------------------------------------------------------------------------------------------------


def test_losses_of_methods_reach_the_criterion():
    with registered(probes.Halting):
        model = build(encoder="halting", decoder="halting", criterion="posenc_label_smoothed_cross_entropy")
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
    criterion = CrossEntropyWithLosses(task, False, 0.1)
    source, target = torch.stack(sentences(92, 6, 6)), torch.stack(sentences(93, 7, 7))
    net_input = {"src_tokens": source, "src_lengths": None, "prev_output_tokens": target[:, :-1]}
    sample = {"net_input": net_input, "target": target[:, 1:].contiguous(), "ntokens": 12}
    loss, size, logged = criterion(model, sample)
    plain, _ = criterion.compute_loss(model, model(**net_input), sample)
    ponder = model(**net_input)[1]["losses"]["ponder"]
    assert ponder.shape == (2,) and ponder.min() > 0
    close(loss, plain + ponder.sum())
    assert logged["loss_of_ponder"] == ponder.sum() and size == 12
    loss.backward()
    assert model.encoder.position.methods[0].weight.grad.abs().max() > 0


def test_losses_follow_their_sentences():
    with registered(probes.Halting):
        model = build(encoder="halting", criterion="posenc_label_smoothed_cross_entropy")
    encoded = encode(model, torch.stack(sentences(94, 6, 6)))
    moved = model.encoder.reorder_encoder_out(encoded, torch.tensor([1, 1, 0]))
    assert torch.equal(moved["loss.ponder"][0], encoded["loss.ponder"][0][[1, 1, 0]])


def test_a_criterion_that_would_drop_losses_is_refused():
    with registered(probes.Halting), pytest.raises(Refusal, match=r"halting adds a term to the training loss.*--criterion"):
        build(encoder="halting", criterion="label_smoothed_cross_entropy")


# --- options of layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_convolution_with_one_tap_is_the_linear_network(side):
    plain, wide = build(), build(**{f"{side}_ffn_kernel": 3})
    given = copy.deepcopy(plain.state_dict())
    # the tap at the position itself: the middle tap in the encoder, and the last tap in the decoder, which is causal
    tap = 1 if side == "encoder" else 2
    for name, own in wide.state_dict().items():
        if own.shape != given[name].shape:
            given[name] = torch.zeros_like(own).index_copy_(2, torch.tensor([tap]), given[name].unsqueeze(-1))
    wide.load_state_dict(given)
    source, target = torch.stack(sentences(95, 7)), torch.stack(sentences(96, 6))
    close(logits(wide, source, target), logits(plain, source, target))


#: all checks of decoding except check_full_context. The causal convolution of a decoder does not read later words
CONVOLVED = [*checks_decoding.RUNNING, checks_decoding.check_beams]
CONVOLVED.remove(checks_decoding.check_full_context)


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("check", CONVOLVED)
def test_convolutions_are_padded_cached_and_causal(check, kernel, monkeypatch):
    changes = {"decoder_ffn_kernel": kernel, "encoder_ffn_kernel": 3}
    monkeypatch.setattr(checks_decoding, "fixed", lambda case: build_for(case, **changes))
    check(Case("none", "decoder"))


def test_without_residual_and_with_uniform_attention_all_words_are_one():
    """Queries of zero attend uniformly, so that only the residual connection distinguishes positions (Liu et al., 2021a)."""
    found = {}
    for dropped in (None, 0):
        model = build(encoder="sinusoidal", encoder_drop_residual=dropped)
        layer = model.encoder.layers[0]
        with torch.no_grad():
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.q_proj.bias.zero_()
        states = model.encoder(torch.stack(sentences(97, 6)), return_all_hiddens=True)["encoder_states"]
        found[dropped] = states[1] if len(states) > 2 else states[-2]
    close(found[0], found[0][:1].expand_as(found[0]))
    differ(found[None], found[None][:1].expand_as(found[None]), "the residual connection is missing")


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"encoder_ffn_kernel": 2}, "--encoder-ffn-kernel 2"),
        ({"decoder_ffn_kernel": 0}, "--decoder-ffn-kernel 0"),
        ({"encoder_drop_residual": 2}, "Expected layers 0 to 1"),
        ({"encoder_drop_residual": 0, "encoder_layerdrop": 0.5}, "--encoder-layerdrop"),
    ],
)
def test_options_of_layers_that_cannot_be(changes, says):
    with pytest.raises(Refusal, match=says):
        build(**changes)


# --- side inputs -----------------------------------------------------------------------------------------------------


def test_a_missing_side_input_is_one_line():
    with registered(probes.Graph):
        model = build(encoder="graph")
        with pytest.raises(PositionError) as error:
            model.encoder(torch.stack(sentences(98, 5)))
    assert all(part in str(error.value) for part in ("graph (encoder)", "'edges'", "[B S S]", "source"))


def test_two_methods_that_disagree_on_a_side_input_are_refused():
    class Other(probes.Depth):
        card = probes.card("other_depth", sites=("encoder",), side_inputs=(SideInput("depth", "B S S"),))

    with pytest.raises(PositionError, match="'depth'"):
        declared_by([probes.Depth.card, Other.card])


def test_encoder_and_decoder_that_disagree_on_a_side_input_are_refused():
    class Plan(probes.Countdown):
        card = probes.card("other_plan", parameters="0", sites=("decoder",), side_inputs=(SideInput("depth", "B", "target"),))

    with registered(probes.Depth, Plan), pytest.raises(Refusal, match="'depth'"):
        build(encoder="depth", decoder="other_plan")


@pytest.mark.parametrize("left_pad", [False, True])
def test_collated_side_inputs_are_padded_beside_their_words(left_pad):
    one, two = torch.tensor([1, 2, 3]), torch.tensor([4])
    found = SideInput("x", "B S", padding=9).collate([one, two], 4, left_pad)
    assert found.tolist() == ([[9, 1, 2, 3], [9, 9, 9, 4]] if left_pad else [[1, 2, 3, 9], [4, 9, 9, 9]])
    pairs = SideInput("y", "B S S").collate([one.unsqueeze(1) * one, two[None]], 3, left_pad)
    assert pairs[0].tolist() == [[1, 2, 3], [2, 4, 6], [3, 6, 9]]
    assert pairs[1].nonzero().tolist() == ([[2, 2]] if left_pad else [[0, 0]])
    assert SideInput("z", "B").collate([torch.tensor(5), torch.tensor(6)], 3, left_pad).tolist() == [5, 6]

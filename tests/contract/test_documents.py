"""Global layers, and translations with as many sentences as the source.

A global layer combines attention within a sentence with attention to the whole document.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_posenc.core import Refusal, State
from fairseq_posenc.host.generation.segments import ForcedSegments, SegmentEnsemble
from fairseq_posenc.host.models.layers.transformer import Gate
from fairseq_posenc.testing import checks_decoding
from fairseq_posenc.testing.cases import Case
from fairseq_posenc.testing.models import SEPARATOR, batch, build, build_for, close, differ, logits, sentences

SPECS = {"encoder": "sinusoidal+group", "decoder": "sinusoidal+group", "cross": "group"}
GLOBAL = {f"{site}_global_layers": 1 for site in SPECS}


def document(*sizes, seed=1):
    """Return one document [1, T] with sentences of these sizes. A separator follows each sentence except the last."""
    found = []
    for number, words in enumerate(sentences(seed, *sizes)):
        words[words == SEPARATOR] = 7
        found += [words, torch.tensor([SEPARATOR])] if number < len(sizes) - 1 else [words]
    return torch.cat(found).unsqueeze(0)


# -- the gate ------------------------------------------------------------------------------------------------------------


def test_the_gate_of_the_authors():
    gate = Gate(2).double()
    gate.proj.weight.data = torch.tensor([[0.5, -1, 0.25, 0], [0, 1, -0.5, 2]], dtype=torch.double)
    gate.proj.bias.data = torch.tensor([0.1, -0.2], dtype=torch.double)
    local, whole = torch.tensor([[1.0, 2.0], [-1.0, 0.5]]).double()
    close(gate(local, whole), torch.tensor([-0.6777821008, 1.9466432161], dtype=torch.double), 1e-8)
    nn.init.zeros_(gate.proj.weight)
    nn.init.constant_(gate.proj.bias, 30)
    close(gate(local, whole), local, 1e-9)


def test_a_new_gate_halves_on_average():
    torch.manual_seed(1)
    gate = Gate(64)
    assert not gate.proj.bias.any() and gate.proj.weight.abs().max() <= math.sqrt(6 / (3 * 64))


# -- global layers -------------------------------------------------------------------------------------------------------


def test_parameters_of_global_layers():
    """A global layer has 6 d^2 + 5 d additional parameters for each of its attentions: four projections and a gate."""
    d = 16
    plain, gated = build(**SPECS), build(**SPECS, **GLOBAL)
    count = [sum(p.numel() for p in model.parameters()) for model in (plain, gated)]
    assert count[1] - count[0] == 3 * (6 * d * d + 5 * d)
    new = {name for name in gated.state_dict() if name not in plain.state_dict()}
    assert {name.split(".")[2] for name in new} == {"1"}  # the last of two layers
    assert {name.split(".")[3] for name in new} == {
        "self_attn_global", "self_attn_gate", "encoder_attn_global", "encoder_attn_gate",
    }  # fmt: skip


def reached(model, source, target):
    """Return the effects of two source words. An effect is the largest absolute difference after the word is replaced.

    The first number is the effect of the first source word on the last encoder state. The second number is the effect of the
    last source word on the logits of the first target word.
    """
    first, last = source.clone(), source.clone()
    first[0, 0], last[0, -1] = 11, 11
    states = [model.encoder(x)["encoder_out"][0][-1, 0] for x in (source, first)]
    encoder = (states[1] - states[0]).abs().max().item()
    decoder = (logits(model, last, target) - logits(model, source, target))[0, 0].abs().max().item()
    return encoder, decoder


def test_sentences_are_apart_without_global_layers():
    source, target = document(4, 5, 3), document(3, 4, 2, seed=2)
    assert reached(build(**SPECS), source, target) == (0, 0)
    encoder, decoder = reached(build(**SPECS, **GLOBAL), source, target)
    assert encoder > 1e-4 and decoder > 1e-4
    for site, through in (("encoder", (True, True)), ("cross", (False, True)), ("decoder", (False, False))):
        found = reached(build(**SPECS, **{f"{site}_global_layers": 1}), source, target)
        assert tuple(number > 1e-4 for number in found) == through, site


@pytest.mark.parametrize(
    "specs", [SPECS, {**SPECS, "decoder": "t5+group", "encoder": "bipe_alibi+group", "cross": "bipe_rope+group"}]
)
@pytest.mark.parametrize("beam", [1, 2])
def test_decoding_with_global_layers(specs, beam, monkeypatch):
    """Decode step by step and with teacher forcing. Beams are reordered."""
    monkeypatch.setattr(checks_decoding, "build_for", lambda case, **changes: build(**specs, **GLOBAL))
    checks_decoding.check_incremental(Case("group", "decoder"), beam, any_change=True)


def test_global_layers_beside_padding():
    model = build(**SPECS, **GLOBAL)
    sources, targets = [document(3, 4)[0], document(5, 2, 2)[0]], [document(2, 3, seed=3)[0], document(4, 2, 1, seed=4)[0]]
    together = logits(model, batch(sources, "left"), batch(targets))
    for row, (source, target) in enumerate(zip(sources, targets)):
        close(together[row, : len(target)], logits(model, source[None], target[None])[0])


def test_gradients_of_global_layers():
    model = build(**SPECS, **GLOBAL).train()
    logits(model, document(4, 5, 3), document(3, 4, 2, seed=2)).square().sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    states = model.decoder.layers[1]
    assert states.self_attn_global.q_proj.weight.grad.any() and states.encoder_attn_gate.proj.weight.grad.any()


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"encoder_global_layers": 3}, "--encoder-global-layers 3 is not allowed. Expected a number from 0 to 2."),
        ({"cross_global_layers": -1}, "--cross-global-layers -1 is not allowed"),
        ({"decoder": "sinusoidal", "decoder_global_layers": 1}, "no method restricts these layers to a sentence"),
        ({"encoder": "sinusoidal+group:layers=0", "encoder_global_layers": 1}, "Add group to --encoder-position."),
        ({"encoder_global_layers": 1, "tie_encoder_layers": True}, "all layers are one"),
    ],
)  # fmt: skip
def test_global_layers_that_are_refused(changes, says):
    with pytest.raises(Refusal) as error:
        build(**{**SPECS, **changes})
    assert says in str(error.value) and "\n" not in str(error.value)


# -- cross-attention in training -----------------------------------------------------------------------------------------


def test_a_target_with_more_sentences_than_its_source():
    """Additional target sentences attend to the last source sentence, and no result is NaN."""
    model = build(**SPECS)
    assert logits(model, document(3, 2), document(2, 2, 2, 2, seed=2)).isfinite().all()


# -- forced sentences ----------------------------------------------------------------------------------------------------


@pytest.fixture
def words():
    found = Dictionary()
    for word in ("<sep>", "a", "b"):
        found.add_symbol(word)
    return found


def ensemble(words, token="<sep>"):
    segments = ForcedSegments(token, words, words)
    return SegmentEnsemble([nn.Module()], segments, SimpleNamespace())


def numbers(words, text):
    return [words.index(word) for word in text.split()]


def allowed(words, source, prefix, limits=None, free=True):
    """Return the tokens that are allowed next."""
    forced = ensemble(words)
    tokens = torch.tensor([numbers(words, prefix)])
    limits = forced.segments.limits(torch.tensor([numbers(words, source)])) if limits is None else torch.tensor([limits])
    scores = forced.forced(torch.zeros(1, len(words)), tokens, limits, torch.tensor([free]))[0]
    return {word for word in ("<s>", "<sep>", "</s>", "a", "b") if scores[words.index(word)] == 0}


def test_limits_of_sentences(words):
    tokens = torch.tensor([numbers(words, text) for text in ("<pad> <pad> a b <sep> <sep> a </s>", "a b a b a b a </s>")])
    found = ForcedSegments("<sep>", words, words).limits(tokens)
    assert found.tolist() == [[12, 10, 11], [18, 0, 0]]  # int(1.2 n + 10) for 2, 0, 1 and 7 words
    right = torch.tensor([numbers(words, "a b <sep> <sep> a </s> <pad> <pad>")])
    assert ForcedSegments("<sep>", words, words).limits(right).tolist() == [[12, 10, 11]]


def test_a_translation_has_as_many_sentences_as_its_source(words):
    # at the start of a sentence, <sep> and </s> are not allowed, because a sentence must not be empty. <s> is never allowed,
    # because fairseq-generate does not print this token
    assert allowed(words, "a <sep> b </s>", "</s>") == {"a", "b"}
    assert allowed(words, "a <sep> b </s>", "</s> a") == {"a", "b", "<sep>"}
    assert allowed(words, "a <sep> b </s>", "</s> a <sep>") == {"a", "b"}
    assert allowed(words, "a <sep> b </s>", "</s> a <sep> b") == {"a", "b", "</s>"}
    assert allowed(words, "a </s>", "</s> a") == {"a", "b", "</s>"}


def test_sentences_end_at_their_limit(words):
    assert allowed(words, "", "</s> a", limits=[1, 2]) == {"<sep>"}
    assert allowed(words, "", "</s> a <sep> b", limits=[1, 2]) == {"a", "b", "</s>"}
    assert allowed(words, "", "</s> a <sep> b a", limits=[1, 2]) == {"</s>"}
    # in the generator's last step, every translation must end
    assert "</s>" in allowed(words, "", "</s> a", limits=[9, 9], free=False)


def test_more_sentences_than_the_source(words):
    """The prefix may have more sentences than the source."""
    assert allowed(words, "a </s>", "</s> a <sep> b") == {"a", "b", "</s>"}


@pytest.mark.parametrize("token", ["<doc>", "</s>"])
def test_separators_that_are_none(words, token):
    with pytest.raises(Refusal) as error:
        ForcedSegments(token, words, words)
    assert f"--segments-forced {token}: the source dictionary has no such separator. Expected" in str(error.value)


def test_scored_references_are_not_forced(words):
    segments = ForcedSegments("<sep>", words, words)
    with pytest.raises(Refusal, match="Expected no --score-reference"):
        segments.prepare(SimpleNamespace(), [])
    assert ForcedSegments("", words, words).prepare("generator", []) == "generator"


def test_states_of_both_attentions_are_apart():
    model, state = build(**SPECS, **GLOBAL), {}
    encoded = model.encoder(document(3, 2))
    model.decoder(torch.tensor([[2]]), encoded, incremental_state=state)
    names = set(State(state)._tensors("rows")) | set(State(state)._tensors("sources"))
    assert {"self.1.key", "self.1.global.key", "cross.1.key", "cross.1.global.key"} <= names and "self.0.global.key" not in names
    differ(state["posenc.rows"]["self.1.key"], state["posenc.rows"]["self.1.global.key"], "one cache serves both")


def test_a_model_for_one_site_is_built():
    assert build_for(Case("group", "cross")).decoder.cross_position.restricts(0)

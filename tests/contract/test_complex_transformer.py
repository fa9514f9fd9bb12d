"""The Transformer with complex hidden states: a layer in complex numbers, exact values, and the checks of every model."""

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Positions, Refusal
from fairseq_posenc.testing import checks_decoding
from fairseq_posenc.testing.models import batch, build, close, differ, encode, logits, sentences
from tests.contract.cases import SMALL, Case

ARCH, SPEC = "posenc_complex_transformer_tiny", "complex:frequencies=word"


def host(**changes):
    return build(**{"encoder": SPEC, "decoder": SPEC, "arch": ARCH, **changes})


# --- a loop over complex numbers --------------------------------------------------------------------------------------


def real_map(module, x):
    return module.weight.detach().numpy() @ x + (0 if module.bias is None else (1 + 1j) * module.bias.detach().numpy())


def complex_map(module, x):
    weight = module.real.weight.detach().numpy() + 1j * module.imaginary.weight.detach().numpy()
    real, imaginary = module.real.bias.detach().numpy(), module.imaginary.bias.detach().numpy()
    return weight @ x + (real - imaginary) + 1j * (real + imaginary)


def norm(module, x):
    def one(part):
        centred = part - part.mean()
        return centred / np.sqrt((centred**2).mean() + 1e-5) * module.weight.detach().numpy() + module.bias.detach().numpy()

    return one(x.real) + 1j * one(x.imag)


def relu(x):
    return np.maximum(x.real, 0) + 1j * np.maximum(x.imag, 0)


def attend(attention, queries, keys, causal=False, conjugate=False):
    heads, out = attention.num_heads, []
    for t, query in enumerate(queries):
        q = real_map(attention.q_proj, query).reshape(heads, -1)
        seen = keys[: t + 1] if causal else keys
        merged = np.zeros_like(q)
        for head in range(heads):
            k = [real_map(attention.k_proj, key).reshape(heads, -1)[head] for key in seen]
            v = [real_map(attention.v_proj, key).reshape(heads, -1)[head] for key in seen]
            width = q.shape[1]
            scores = np.array([abs(np.sum(q[head] * (one.conj() if conjugate else one))) for one in k]) / np.sqrt(2 * width)
            weights = np.exp(scores - scores.max())
            merged[head] = sum(weight * value for weight, value in zip(weights / weights.sum(), v))
        out.append(real_map(attention.out_proj, merged.reshape(-1)))
    return out


def feed_forward(layer, states):
    inner = [complex_map(layer.fc2, relu(complex_map(layer.fc1, x))) for x in states]
    return [norm(layer.final_layer_norm, x + y) for x, y in zip(states, inner)]


def first_states(stack, tokens):
    method, width = stack.position.methods[0], SMALL.embed_dim
    rows = stack.embed_tokens.weight.detach().numpy()[tokens] * np.sqrt(width)
    frequency = method.frequency.detach().numpy()[tokens]  # [T, 1]
    return list(rows * np.exp(1j * frequency * (np.arange(len(tokens))[:, None] + 1)))


def reference(model, source, target, conjugate):
    states = first_states(model.encoder, source)
    for layer in model.encoder.layers:
        found = attend(layer.self_attn, states, states, conjugate=conjugate)
        states = feed_forward(layer, [norm(layer.self_attn_layer_norm, x + y) for x, y in zip(states, found)])
    encoded, states = states, first_states(model.decoder, target)
    for layer in model.decoder.layers:
        found = attend(layer.self_attn, states, states, causal=True, conjugate=conjugate)
        states = [norm(layer.self_attn_layer_norm, x + y) for x, y in zip(states, found)]
        found = attend(layer.encoder_attn, states, encoded, conjugate=conjugate)
        states = feed_forward(layer, [norm(layer.encoder_attn_layer_norm, x + y) for x, y in zip(states, found)])
    return np.array([model.decoder.output_projection.weight.detach().numpy() @ np.abs(x) ** 2 for x in states])


@pytest.mark.parametrize("conjugate", [False, True])
def test_it_is_the_equation_in_complex_numbers(conjugate):
    model = host(conjugate_scores=conjugate).double()
    source, target = sentences(1, 6)[0], sentences(2, 5)[0]
    expected = reference(model, source.numpy(), target.numpy(), conjugate)
    np.testing.assert_allclose(logits(model, source[None], target[None])[0].detach(), expected, rtol=1e-8, atol=1e-8)


# --- exact values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conjugate, pairs",
    [
        (False, {(1, 4): 1.6022873, (2, 3): 1.6022873}),  # depends on the sum of the positions
        (True, {(1, 4): 0.1414744, (2, 3): 1.7551651, (3, 6): 0.1414744}),  # depends on the difference of the positions
    ],
)
def test_scores_of_two_waves(conjugate, pairs):
    attention = host(conjugate_scores=conjugate).encoder.layers[0].self_attn
    waves = {t: torch.tensor([[[[np.cos(t), np.cos(2 * t), np.sin(t), np.sin(2 * t)]]]]) for t in range(7)}
    at = Positions.counted(0, 1)
    for (t, s), expected in pairs.items():
        found = attention.logits(None, AttentionContext(at, at), waves[t], waves[s], None)
        assert found.item() == pytest.approx(expected, abs=1e-6)


def test_a_score_of_zero_has_a_gradient():
    attention = host().encoder.layers[0].self_attn
    q, at = torch.zeros(1, 1, 1, 4, requires_grad=True), Positions.counted(0, 1)
    attention.logits(None, AttentionContext(at, at), q, torch.ones(1, 1, 1, 4), None).sum().backward()
    assert q.grad.isfinite().all()


# --- checks of every model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [*checks_decoding.RUNNING, checks_decoding.check_beams])
@pytest.mark.parametrize(
    "changes",
    [{}, {"encoder_normalize_before": True, "decoder_normalize_before": True, "conjugate_scores": True}],
    ids=["post", "pre"],
)
def test_it_runs_like_any(check, changes, monkeypatch):
    model = host(**changes)
    model.side = None
    monkeypatch.setattr(checks_decoding, "fixed", lambda case: model)
    check(Case("none", "decoder"))


@pytest.mark.parametrize(
    "spec", ["complex", "complex:frequencies=dimension", "complex:frequencies=dimension,learned=false", "sinusoidal"]
)
def test_positions_of_all_kinds_of_frequencies_reach_it(spec):
    model, plain = host(encoder=spec, decoder=spec), host(encoder="none", decoder="none")
    source, target = torch.stack(sentences(3, 7)), torch.stack(sentences(4, 6))
    given = {name: x for name, x in model.state_dict().items() if name in plain.state_dict() and name != "positions_version"}
    plain.load_state_dict({**given, "positions_version": plain.positions_version})
    differ(logits(model, source, target), logits(plain, source, target), "positions are not used")


def test_every_parameter_has_a_gradient():
    model = host().train()
    source, target = batch(sentences(5, 9, 4), "left"), batch(sentences(6, 8, 5))
    logits(model, source, target).log_softmax(-1)[..., 5].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert name.endswith("k_proj.bias") or parameter.grad.abs().max() > 0, name


def test_it_recomputes_activations_and_saves_itself():
    plain, recomputed = host(), host(checkpoint_activations=True).train()
    recomputed.load_state_dict(plain.state_dict())
    source, target = torch.stack(sentences(7, 6)), torch.stack(sentences(8, 6))
    close(logits(recomputed, source, target), logits(plain, source, target))


def test_its_sizes_are_those_of_its_architecture():
    model = build(encoder="complex", decoder="complex", arch="posenc_complex_transformer_tiny")
    assert encode(model, torch.stack(sentences(9, 6)))["encoder_out"][0].size(-1) == 2 * SMALL.embed_dim
    layer = model.encoder.layers[0]
    assert sum(p.numel() for p in layer.fc1.parameters()) == 2 * (SMALL.embed_dim + 1) * 24
    assert sum(p.numel() for p in layer.self_attn.parameters()) == 4 * (SMALL.embed_dim + 1) * SMALL.embed_dim


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"encoder": "rope"}, "posenc_complex_transformer: rope acts in the attention"),
        ({"decoder": "universal"}, "universal acts in the attention"),
        ({"cross": "alibi"}, "alibi acts in the attention"),
        ({"length_loss_weight": 0.1}, "--length-loss-weight is not supported by posenc_complex_transformer"),
        ({"decoder_ffn_kernel": 3}, "--decoder-ffn-kernel is not supported by posenc_complex_transformer"),
    ],
)
def test_what_it_cannot_hold_is_refused(changes, says):
    with pytest.raises(Refusal, match=says):
        host(**changes)

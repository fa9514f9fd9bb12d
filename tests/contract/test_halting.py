"""Adaptive computation time: exact values, comparison with a loop, equal halting in all ways of decoding, cost, and errors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from fairseq_posenc.core import Refusal
from fairseq_posenc.host.criterions import CRITERION
from fairseq_posenc.host.criterions.cross_entropy import CrossEntropyWithLosses
from fairseq_posenc.host.models.layers.halting import HALTING, Halting, Pondering
from fairseq_posenc.host.models.layers.transformer import Masks
from fairseq_posenc.testing import checks_decoding
from fairseq_posenc.testing.models import PAD, batch, build, close, differ, encode, logits, sentences
from tests.contract.cases import SMALL, Case

STEPS = 6


def halting(how="continue", **changes):
    sides = ("encoder", "decoder")
    given = {f"{side}_halting": how for side in sides} | {f"tie_{side}_layers": True for side in sides}
    given |= {f"{side}_layers": STEPS for side in sides}
    model = build(**{"encoder": "universal", "decoder": "universal", **given, **changes})
    with torch.no_grad():  # words that halt after different numbers of steps
        for side in (model.encoder, model.decoder):
            side.halting.weight.normal_(std=0.5)
            side.halting.bias.fill_(-0.7)
    return model


# --- exact values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "p, steps, remainder, weights",
    [
        (0.3, 4, 0.1, [0.1323, 0.189, 0.27, 0.1]),
        (0.7310586, 2, 0.2689414, [0.5344466, 0.2689414]),
        # the word never halts. Its remainder is 0, and its weights sum to less than one
        (0.1, 6, 0.0, [0.1 * 0.9**n for n in range(5, -1, -1)]),
    ],
)
def test_a_constant_probability(p, steps, remainder, weights):
    module = Halting(2, "continue", 0.01, 0.01)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(np.log(p / (1 - p)))
    pondering, x = Pondering(module, torch.zeros(1, 1, 2), None), torch.zeros(1, 1, 2)
    found = np.zeros(STEPS)
    for step in range(STEPS):
        x = pondering.after_step(pondering.before_step(x, x + 1))
        assert pondering.finished() == (step + 1 >= steps and remainder > 0)
        found *= 1 - pondering.weight.item()
        found[step] = pondering.weight.item()
    assert pondering.steps.item() == steps and pondering.remainder.item() == pytest.approx(remainder, abs=1e-6)
    np.testing.assert_allclose(found[: len(weights)], weights, atol=1e-6)
    np.testing.assert_allclose(found[len(weights) :], 0)
    assert pondering.output[0, 0, 0].item() == pytest.approx(sum((n + 1) * w for n, w in enumerate(weights)), abs=1e-5)


# --- a loop over words ------------------------------------------------------------------------------------------------


def loop(model, source):
    """Compute the encoder output with the layer of the model. A loop over the words computes the halting of each word.

    Return the encoder output, and the number of steps plus the remainder (N + R) of every word.
    """
    stack = model.encoder
    with torch.no_grad():
        at = checks_decoding.Positions.counted(0, source.size(1))
        ctx = stack.position.begin(checks_decoding.AttentionContext(at, at))
        x, _ = stack.embed(source, ctx)
        words = range(source.size(1))
        total, out, cost, running = [0.0] * len(words), [0 * x[0, 0]] * len(words), [0.0] * len(words), [True] * len(words)
        for step in range(STEPS):
            here = stack.position.at_layer(ctx, step)
            state = stack.position.apply_chain("before_layer", x, ctx=here)
            if stack.halting.copies:
                state = torch.stack([state[0, t] if running[t] else x[0, t] for t in words])[None]
            p = [1 / (1 + np.exp(-float(stack.halting.weight[0] @ state[0, t] + stack.halting.bias))) for t in words]
            after = stack.layers[0](state, stack.position, here, Masks(stack.position.masks(ctx)[step]))
            if stack.halting.copies:
                after = torch.stack([after[0, t] if running[t] else x[0, t] for t in words])[None]
            for t in words:
                if not running[t]:
                    continue
                cost[t] += 1
                if total[t] + p[t] > 0.99:
                    weight, running[t] = 1 - total[t], False
                    cost[t] += weight
                else:
                    weight = p[t]
                total[t] += weight
                out[t] = weight * after[0, t] + (1 - weight) * out[t]
            x = after
    return torch.stack(out), cost


@pytest.mark.parametrize("how", HALTING)
def test_it_is_the_loop_over_words(how):
    model, source = halting(how).double(), sentences(1, 9)[0][None]
    expected, cost = loop(model, source)
    found = encode(model, source)
    close(found["encoder_out"][0][:, 0], expected, 1e-9)
    assert found["loss.ponder"][0].item() == pytest.approx(0.01 * sum(cost))
    assert len({int(n) for n in cost}) > 2, "words halt after equal numbers of steps: the test sees little"


def test_copied_states_are_others_than_continued_ones():
    source, target = torch.stack(sentences(2, 8)), torch.stack(sentences(3, 7))
    differ(logits(halting("copy"), source, target), logits(halting("continue"), source, target), "nothing is copied")


# --- all ways of decoding have the same result ------------------------------------------------------------------------


@pytest.mark.parametrize("check", [*checks_decoding.RUNNING, checks_decoding.check_beams])
@pytest.mark.parametrize("how", HALTING)
def test_words_halt_alike_alone_padded_and_step_by_step(check, how, monkeypatch):
    model = halting(how)
    model.side = None
    monkeypatch.setattr(checks_decoding, "fixed", lambda case: model)
    check(Case("none", "decoder"))


@pytest.mark.parametrize("how", HALTING)
def test_training_that_stops_early_gives_what_all_steps_give(how):
    model = halting(how)
    with torch.no_grad():
        model.encoder.halting.bias.fill_(4.0)
        model.decoder.halting.bias.fill_(4.0)
    source, target = batch(sentences(4, 8, 5), "left"), batch(sentences(5, 7, 4))
    runs, calls = [], []
    model.encoder.layers[0].register_forward_hook(lambda *_: calls.append(1))
    for train in (False, True):
        calls.clear()
        found, extra = model.train(train)(source, None, target)
        runs.append((found, extra["losses"]["ponder"], len(calls)))
    close(runs[1][0], runs[0][0], 0)
    close(runs[1][1], runs[0][1], 0)
    assert runs[0][2] == STEPS > runs[1][2]


def test_steps_in_half_precision_are_decided_in_float32():
    model = halting().to(torch.bfloat16)
    found = encode(model, torch.stack(sentences(6, 8)))
    assert found["encoder_out"][0].dtype == torch.bfloat16 and found["loss.ponder"][0].dtype == torch.float32
    assert found["encoder_out"][0].isfinite().all()


# --- cost -------------------------------------------------------------------------------------------------------------


def test_ponder_cost_and_steps_reach_the_criterion():
    model = halting(criterion=CRITERION, ponder_weight=0.5).train()
    criterion = CrossEntropyWithLosses(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD)), False, 0.1)
    source, target = batch(sentences(7, 9, 4), "left"), batch(sentences(8, 8, 5))
    net_input = {"src_tokens": source, "src_lengths": None, "prev_output_tokens": target[:, :-1]}
    sample = {"net_input": net_input, "target": target[:, 1:].contiguous(), "ntokens": 11}
    loss, size, logged = criterion(model, sample)
    plain, _ = criterion.compute_loss(model, model(**net_input), sample)
    close(loss, plain + logged["loss_of_ponder"])
    assert logged["count_of_encoder_steps"] == 13 and logged["count_of_decoder_steps"] == 12  # padding has no cost
    assert 13 < logged["sum_of_encoder_steps"] < 13 * STEPS
    steps = logged["sum_of_encoder_steps"] + logged["sum_of_decoder_steps"]
    assert 0.5 * steps < logged["loss_of_ponder"] < 0.5 * (steps + 25)
    loss.backward()
    for stack in (model.encoder, model.decoder):
        assert stack.halting.weight.grad.abs().max() > 0
    with metrics.aggregate("test") as found:
        CrossEntropyWithLosses.reduce_metrics([logged, logged])
    values = found.get_smoothed_values()
    assert values["encoder_steps"] == pytest.approx(float(logged["sum_of_encoder_steps"]) / 13, abs=1e-3)
    assert values["decoder_steps"] == pytest.approx(float(logged["sum_of_decoder_steps"]) / 12, abs=1e-3)
    assert values["ponder"] == pytest.approx(float(logged["loss_of_ponder"]) / size, abs=1e-3)
    assert size == 11 and "divided by the number of target tokens" in " ".join(Halting.__doc__.split())


def test_more_ponder_weight_is_more_cost_and_nothing_else():
    source, target = torch.stack(sentences(9, 8)), torch.stack(sentences(10, 7))
    found = [halting(ponder_weight=weight)(source, None, target) for weight in (0.01, 0.02)]
    close(found[1][0], found[0][0], 0)
    close(found[1][1]["losses"]["ponder"], 2 * found[0][1]["losses"]["ponder"])


def test_it_adds_one_vector_and_one_number_a_stack():
    plain = build(encoder="universal", decoder="universal", tie_encoder_layers=True, tie_decoder_layers=True)
    counts = [sum(p.numel() for p in model.parameters()) for model in (halting(), plain)]
    assert counts[0] - counts[1] == 2 * (SMALL.embed_dim + 1)


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"tie_encoder_layers": False}, "--encoder-halting: requires one shared layer. Add --tie-encoder-layers"),
        ({"decoder_layerdrop": 0.1}, "--decoder-halting: cannot be combined with --decoder-layerdrop"),
        ({"halting_epsilon": 1.0}, r"--halting-epsilon 1.0: not allowed. Expected a finite number from 0 to less than 1"),
        ({"halting_epsilon": float("nan")}, "--halting-epsilon nan: not allowed"),
        ({"ponder_weight": -1.0}, r"--ponder-weight -1.0: not allowed. Expected a finite number of at least 0"),
        ({"ponder_weight": float("inf")}, "--ponder-weight inf: not allowed"),
        (
            {"criterion": "label_smoothed_cross_entropy"},
            f"--encoder-halting adds a term to the training loss.*Expected --criterion {CRITERION}",
        ),
        ({"arch": "posenc_complex_transformer_tiny", "encoder": "none", "decoder": "none"}, "--encoder-halting is not supported"),
    ],
)
def test_what_cannot_halt_is_refused(changes, says):
    with pytest.raises(Refusal, match=says):
        halting(**changes)


@pytest.mark.parametrize("option", ["ponder_weight", "halting_epsilon"])
def test_an_option_without_halting_is_named_once(option, caplog):
    build(**{option: 0.5})
    found = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    assert found == [f"--{option.replace('_', '-')} 0.5 has no effect without --encoder-halting or --decoder-halting"]


@torch.no_grad()
def test_an_end_of_sentence_without_a_target_costs_nothing():
    """With --num-batch-buckets, sentences that are shorter than their bucket end with </s>, which has no target."""
    model, end = halting(), 2
    source, plain = batch(sentences(5, 6, 4)), batch(sentences(6, 5, 3))
    plain[:, 0] = end
    bucket = torch.cat([plain, torch.full((2, 2), PAD)], 1)
    bucket[[0, 1], plain.ne(PAD).sum(1)] = end
    model.train()
    found = [model(source, None, target)[1] for target in (plain, bucket)]
    close(found[1]["losses"]["ponder"], found[0]["losses"]["ponder"])
    close(found[1]["means"]["decoder_steps"], found[0]["means"]["decoder_steps"])

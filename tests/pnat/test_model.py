"""The PNAT model: padding, batches, permutations, parameters, equality with fairseq's model, and errors."""

from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from fairseq.distributed import DistributedTimeoutWrapper, ModuleProxyWrapper
from fairseq.iterative_refinement_generator import IterativeRefinementGenerator
from fairseq.models.nat import NATransformerModel
from fairseq.models.nat.nonautoregressive_transformer import base_architecture
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_posenc import registry
from fairseq_posenc.core import AttentionContext, PositionError, Positions, Refusal
from fairseq_posenc.host.models.pnat.model import PNATModel
from fairseq_posenc.host.models.pnat.search import inner_words, moved
from tests.pnat.models import EOS, PAD, PREDICTORS, WORDS, arguments, batch, build, lengths_of, run, sentences, task

SOURCES, TARGETS = (9, 1, 6, 0, 3), (7, 4, 6, 2, 11)


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def outputs(model, source, target):
    """Return all results for every sentence of a batch, without padding: logits of words, of the length and of positions."""
    terms = run(model, source, target)
    rows = []
    for row, length in enumerate(lengths_of(target)):
        made = {name: terms[name]["out"][row] for name in terms if "out" in terms[name]}
        made["word_ins"] = made["word_ins"][:length]
        if "position" in terms:
            made["tgt"] = terms["position"]["tgt"][row][terms["position"]["mask"][row]]
            made["position"] = made["position"][terms["position"]["mask"][row]][:, : int(length)]
        rows.append(made)
    return rows


@pytest.fixture(scope="module", params=[*PREDICTORS, "plain"])
def model(request):
    options = {"position_search": "none"} if request.param == "plain" else {"position_predictor": request.param}
    return build(**options, max_source_positions=64)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_sentence_alone_is_as_in_a_batch_padded_on_either_side(model, side):
    sources, targets = sentences(*SOURCES), sentences(*TARGETS, seed=2)
    together = outputs(model, batch(sources, side, extra=2), batch(targets, extra=1))
    for source, target, found in zip(sources, targets, together):
        (alone,) = outputs(model, source.unsqueeze(0), target.unsqueeze(0))
        for name in alone:
            if name != "search":
                close(found[name], alone[name])


@pytest.mark.parametrize("side", ["left", "right"])
def test_generation_of_a_sentence_alone_is_as_in_a_batch(model, side):
    generator = task().build_generator([model], Namespace())
    sources = sentences(*SOURCES)

    def generated(rows, padding):
        tokens = batch(rows, padding)
        found = generator.generate([model], {"net_input": {"src_tokens": tokens, "src_lengths": lengths_of(tokens)}})
        return [hypothesis[0] for hypothesis in found]

    for source, found in zip(sources, generated(sources, side)):
        (alone,) = generated([source], "right")
        assert alone["tokens"].tolist() == found["tokens"].tolist()
        close(alone["positional_scores"], found["positional_scores"])
        assert found["steps"] == 0
        tokens = found["tokens"]
        assert len(tokens) >= 2 and tokens[0] == WORDS.bos() and tokens[-1] == EOS
        assert not set(tokens[1:-1].tolist()) & {WORDS.bos(), EOS, PAD}


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_moving_the_inputs_is_giving_each_the_position_where_it_stands(predictor):
    """The model moves the inputs to the predicted positions.

    The logits are the same if the inputs are not moved, and each input receives the vector of its predicted position.
    """
    model = build(position_predictor=predictor, decoder_position="sinusoidal")
    source, target = batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2))
    encoder_out = model.encoder(source)
    placement = model.decoder.place(encoder_out, target)
    assert (placement.z != torch.arange(target.size(1))).any()
    logits, _ = model.decoder.logits_at(placement, encoder_out, target)

    table = model.decoder.position.methods[0]

    def stay(x, tokens, ctx):
        """Add to each input the sinusoid of its predicted position."""
        zeros = torch.zeros_like(x[:1])
        rows = type(table).embed(table, zeros, tokens, ctx)[0]  # [T, C]
        return x + rows[placement.z]

    table.embed = stay
    features, _ = model.decoder.extract_features(target, encoder_out, vectors=placement.inputs)
    del table.embed
    close(moved(model.decoder.output_layer(features), placement.z), logits)


def test_the_search_sees_the_target_and_prediction_does_not():
    model = build()
    source, target = batch(sentences(8)), batch(sentences(8, seed=2))
    other = target.flip(1)
    other[:, [0, -1]] = target[:, [0, -1]]
    encoder_out = model.encoder(source)
    searched = [model.decoder.place(encoder_out, target, words).z for words in (target, other)]
    assert searched[0].tolist() != searched[1].tolist()
    assert torch.equal(model.decoder.place(encoder_out, target).z, model.decoder.place(encoder_out, other).z)


def test_the_search_by_words_weighs_its_loss_and_reads_the_output_layer():
    source, target = batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2))
    losses = {w: run(build(search_score="words", search_loss_weight=w), source, target)["search"] for w in (0.5, 2.0)}
    assert losses[2.0]["loss"].item() == pytest.approx(4 * losses[0.5]["loss"].item(), rel=1e-5)
    assert {w: term["factor"] for w, term in losses.items()} == {0.5: 0.5, 2.0: 2.0}
    model = build(search_score="words", search_loss_weight=1.0)
    placement = model.decoder.place(model.encoder(source), target, target)
    said = model.decoder.output_layer(placement.inputs).log_softmax(-1)
    close(placement.scores[0, 2, 3], said[0, 2, target[0, 3]])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_training_sentences_stands_at_predicted_positions(share):
    model = build(predicted_positions=share).train()
    source, target = batch(sentences(*[9] * 40)), batch(sentences(*[8] * 40, seed=2))
    encoder_out = model.encoder(source)
    placement = model.decoder.place(encoder_out, target, target)
    predicted = model.decoder.head.positions(placement.read, placement.inner)
    at_predicted = placement.z.eq(predicted).all(1)
    assert (at_predicted | placement.z.eq(placement.searched).all(1)).all() and not predicted.equal(placement.searched)
    assert abs(at_predicted.float().mean() - share) < 0.3
    assert model.eval().decoder.place(encoder_out, target, target).z.equal(placement.searched)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "name, options",
    [
        ("word_ins", {"decoder_position": "complex:frequencies=word", "position_search": "none"}),
        ("position", {"predictor_position": "complex:frequencies=word"}),
    ],
    ids=["decoder", "predictor"],
)
def test_position_methods_that_read_tokens_do_not_read_the_target(name, options, training):
    model = build(**options).train(training)
    source, targets = batch(sentences(7, 5)), [batch(sentences(8, 4, seed=seed)) for seed in (2, 3)]
    first, second = (run(model, source, target)[name]["out"] for target in targets)
    assert torch.equal(first, second)
    first, second = (model.decoder(target, model.encoder(source))[0] for target in targets)
    assert torch.equal(first, second)


@pytest.mark.parametrize("share_all_embeddings", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        *({"position_predictor": predictor} for predictor in PREDICTORS),
        {"search_loss_weight": 1.0},
        {"search_score": "words", "search_loss_weight": 1.0},
        {"position_search": "none"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_no_gradient_flows_through_the_search_and_all_trained_parameters_have_one(options, share_all_embeddings):
    """All parameters are trained, except target embeddings that no loss reads."""
    model = build(decoder_position="shaw:max_distance=4", share_all_embeddings=share_all_embeddings, **options).train()
    terms = run(model, batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2)))
    entropy = torch.nn.functional.cross_entropy
    loss = sum(
        term["loss"] if "loss" in term else entropy(term["out"][term["mask"]], term["tgt"][term["mask"]])
        for term in terms.values()
    )
    loss.backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == [] and all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    read = share_all_embeddings or options == {"search_loss_weight": 1.0}
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["decoder.embed_tokens.weight"] * (not read)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("predictor", PREDICTORS)
def test_half_precision_gives_finite_losses(predictor, dtype):
    model = build(position_predictor=predictor).to(dtype).train()
    terms = run(model, batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2)))
    out, tgt, mask = (terms["position"][name] for name in ("out", "tgt", "mask"))
    loss = torch.nn.functional.cross_entropy(out[mask], tgt[mask]) + terms["word_ins"]["out"].float().square().mean()
    loss.backward()
    assert loss.isfinite() and all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_parameters_beside_those_of_the_plain_model():
    """PNAT has more parameters than the model with position_search=none: the layers and the head of the predictor.

    The heads `matching` and `relative` consist of two projections. The head `pointer` consists of two LSTMs, three projections
    and a start vector.
    """
    d, layers = 16, 2
    plain = sum(p.numel() for p in build(position_search="none").parameters())
    layer = sum(p.numel() for p in build().decoder.reader.layers[0].parameters())
    heads = {
        "matching": 2 * d * d,
        "pointer": (2 + 1) * (8 * d * d + 8 * d) + d + 2 * d * d + d + d,
        "relative": d * d + d + 2 * 4 * (d + 1),
    }
    for predictor, head in heads.items():
        count = sum(p.numel() for p in build(position_predictor=predictor).parameters())
        assert count == plain + layers * layer + head
    tables = build(position_search="none", decoder_position="shaw:max_distance=4")
    none = build(position_search="none", decoder_position="none")
    count = [sum(p.numel() for p in model.parameters()) for model in (tables, none)]
    assert count[0] - count[1] == 2 * (2 * 4 + 1) * (d // 2) * 2  # 2 (2K + 1) d_h per layer
    assert none.encoder.length_predictor.weight.numel() == 256 * d


# --- compared with fairseq's own model ---


def stock(ours):
    """Return fairseq's non-autoregressive Transformer with the parameters of this model."""
    args = Namespace(**{**vars(ours.given), "src_embedding_copy": True, "pred_length_offset": True, "label_smoothing": 0.0})
    base_architecture(args)
    model = NATransformerModel.build_model(args, task())
    state = {name: tensor for name, tensor in ours.state_dict().items() if "positions_version" not in name}
    state["decoder.embed_length.weight"] = state.pop("encoder.length_predictor.weight")
    missing, unexpected = torch.nn.Module.load_state_dict(model, state, strict=False)
    assert not unexpected and all("embed_positions" in name or "_proj" in name or "version" in name for name in missing), missing
    return model.eval()


def test_the_plain_model_is_fairseqs():
    from tests.pnat.models import arguments

    ours = build(position_search="none", bridge_states="words", decoder_position="sinusoidal", encoder_position="sinusoidal")
    ours.given = arguments(position_search="none", bridge_states="words", decoder_position="sinusoidal")
    theirs = stock(ours)
    source, target = batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2))
    found, expected = run(ours, source, target), run(theirs, source, target)
    words = target.ne(PAD)
    close(found["word_ins"]["out"][words], expected["word_ins"]["out"][words], 1e-4)
    length = torch.nn.functional.cross_entropy(expected["length"]["out"], expected["length"]["tgt"])
    close(found["length"]["loss"] / found["length"]["factor"], length, 1e-4)
    lengths = theirs.decoder.forward_length_prediction(expected["length"]["out"], theirs.encoder(source, lengths_of(source)))
    first = ours.initialize_output_tokens(ours.encoder(source), source)
    assert torch.equal(lengths_of(first.output_tokens), lengths.clamp(2, 64))


# --- lengths ---


@pytest.mark.parametrize("beam", [1, 2, 9])
def test_length_beam_has_neighbouring_lengths_of_at_least_two(beam):
    model = build()
    source = batch(sentences(0, 5, 20))
    encoder_out = model.encoder(source)
    first = model.initialize_output_tokens(encoder_out, source)
    lengths = lengths_of(first.output_tokens)
    beams = model.regenerate_length_beam(first, beam)
    expected = [min(64, max(2, int(length) + k - beam // 2)) for length in lengths for k in range(beam)]
    assert lengths_of(beams.output_tokens).tolist() == expected
    assert beams.output_scores.shape == beams.output_tokens.shape


def test_lengths_stay_within_the_positions():
    model = build(max_target_positions=20)
    source = batch(sentences(10, 3))
    encoder_out = model.encoder(source)
    with torch.no_grad():  # the largest length difference has the highest probability
        model.encoder.length_predictor.weight.zero_()
        model.encoder.length_predictor.weight[255] = encoder_out["encoder_out"][0].mean((0, 1))
    assert lengths_of(model.initialize_output_tokens(encoder_out, source).output_tokens).tolist() == [20, 20]


# --- the generator ---


@pytest.fixture(scope="module")
def rescorer():
    """Return an autoregressive model of this plugin."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    args = arguments(criterion="cross_entropy", length_loss_weight=0.0)
    torch.manual_seed(3)
    return ARCH_MODEL_REGISTRY["posenc_transformer_tiny"].build_model(args, TranslationTask(TranslationConfig(), WORDS, WORDS))


def same(found, expected):
    """Compare hypotheses, and histories of hypotheses."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "history":
            assert len(found[name]) == len(value)
            for of_step, expected_of_step in zip(found[name], value):
                same(of_step, expected_of_step)
        elif torch.is_tensor(value):
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value, name


def test_generation_needs_no_numpy_and_gives_the_hypotheses_of_fairseqs_generator(rescorer, monkeypatch):
    """numpy cannot read tensors on a GPU."""
    model, source = build(), batch(sentences(*SOURCES))
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths_of(source)}}
    for beam, reranking in ((1, False), (3, False), (3, True)):
        models = [model, rescorer] if reranking else [model]
        options = {"iter_decode_with_beam": beam, "iter_decode_with_external_reranker": reranking, "retain_iter_history": True}
        generator = task().build_generator(models, Namespace(**options))
        expected = IterativeRefinementGenerator.generate(generator, models, sample)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "__array__", refuse_numpy)
            found = generator.generate(models, sample)
        assert len(found) == len(expected) == len(SOURCES)
        for (hypothesis,), (of_fairseq,) in zip(found, expected):
            same(hypothesis, of_fairseq)


def refuse_numpy(tensor, *args, **kwargs):
    raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize("positions", ["predicted", "reference"])
def test_generation_unwraps_the_model_of_a_training_with_several_workers(positions):
    model, source, target = build(), batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2))
    wrapper = torch.nn.Module()  # like DistributedDataParallel, the wrapper does not have the attributes of the model
    wrapper.module = model
    proxy = ModuleProxyWrapper(wrapper)
    generator = task(decode_positions=positions).build_generator([model], Namespace())
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths_of(source)}, "target": target}
    expected = generator.generate([model], sample)
    for wrapped in (proxy, DistributedTimeoutWrapper(proxy, timeout=0)):
        for (hypothesis,), (of_model,) in zip(generator.generate([wrapped], sample), expected):
            same(hypothesis, of_model)


# --- refusals ---


def test_a_checkpoint_older_than_an_option_has_its_default():
    args = arguments()
    del args.search_score
    model = PNATModel.build_model(args, task())
    assert model.decoder.search_score == "cosine"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"criterion": "nat_loss"}, "wrong --criterion nat_loss. Expected --criterion posenc_nat_loss"),
        ({"predictor_layers": 0}, "--predictor-layers 0: not allowed. Expected at least 1"),
        ({"relative_classes": 0}, "--relative-classes 0: not allowed. Expected at least 1"),
        ({"position_loss_weight": -1.0}, "--position-loss-weight -1.0: not allowed. Expected at least 0"),
        ({"predicted_positions": 1.5}, "--predicted-positions 1.5: not allowed. Expected a number from 0 to 1"),
        ({"search_score": "words"}, "--search-score words: requires a training loss. Expected --search-loss-weight above 0"),
        ({"length_loss_weight": 0.0}, "Expected --length-loss-weight above 0"),
        ({"word_loss_weight": float("nan")}, "--word-loss-weight nan: not allowed. Expected at least 0"),
        ({"encoder_embed_dim": 32, "share_all_embeddings": False}, "Expected equal values"),
        ({"predictor_position": "alibis"}, "alibis"),
        ({"decoder_position": "huang9"}, "huang9"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, message):
    with pytest.raises(Refusal, match=r"^fairseq_posenc: ") as refused:
        build(**options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"position_search": "none", "predictor_layers": 5}, "--predictor-layers 5 has no effect with --position-search none"),
        ({"position_search": "none", "search_loss_weight": 3.0}, "--search-loss-weight 3.0 has no effect"),
        ({"relative_classes": 9}, "--relative-classes 9 has no effect with --position-predictor matching"),
        ({"position_predictor": "pointer", "position_matching": "hungarian"}, "--position-matching hungarian has no effect"),
        ({"position_predictor": "relative", "relative_classes": 9}, ""),
        ({"search_loss_weight": 3.0}, ""),
    ],
)
def test_options_without_effect_are_named(options, message, caplog):
    build(**options)
    found = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    assert len(found) == bool(message) and all(message in line for line in found)


@pytest.mark.parametrize("name", ["wall", "xpos", "row_gates", "grape_ap", "ldpe", "shaw+wall"])
@pytest.mark.parametrize("option", ["decoder_position", "predictor_position"])
def test_methods_that_require_a_causal_mask_are_refused(option, name):
    with pytest.raises(Refusal, match=r"requires a causal mask, but .* Expected a method for site encoder") as refused:
        build(**{option: name})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", ["decoder_position", "predictor_position"])
def test_methods_of_documents_are_refused(option):
    with pytest.raises(Refusal, match="cannot read separators"):
        build(**{option: "segments:separator=w0"})


def test_a_method_with_a_loss_is_refused_in_the_predictor_only(monkeypatch):
    """The loss of PNAT contains the losses of methods in encoder and decoder, and none of the predictor."""
    shaw = registry.method_class("shaw")
    monkeypatch.setattr(shaw, "card", replace(shaw.card, losses=("size",)))
    build(decoder_position="shaw")
    with pytest.raises(Refusal, match="--predictor-position shaw: the method adds a training loss") as refused:
        build(predictor_position="shaw")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", ["decoder_position", "predictor_position"])
def test_alibi_needs_no_causal_mask(option):
    """The penalty of alibi reads the absolute distance, so it is defined for later keys."""
    decoder = build(**{option: "alibi"}).decoder
    positions = decoder.position if option == "decoder_position" else decoder.reader.position
    at = Positions.counted(0, 5)
    bias = positions.methods[0].bias(AttentionContext(at, at))
    assert torch.equal(bias, bias.mT) and bias[..., 0, 1:].lt(0).all()


def test_a_task_without_a_first_symbol_is_refused():
    from fairseq.models import ARCH_MODEL_REGISTRY

    from tests.pnat.models import arguments

    plain = TranslationTask(TranslationConfig(), WORDS, WORDS)
    with pytest.raises(Refusal, match="--task posenc_nat_translation"):
        ARCH_MODEL_REGISTRY["posenc_pnat_tiny"].build_model(arguments(), plain)


def test_decoding_step_by_step_is_refused():
    model = build()
    tokens = batch(sentences(3))
    with pytest.raises(PositionError, match="decoding step by step is not supported"):
        model.decoder(tokens, model.encoder(tokens), incremental_state={})


def test_several_models_are_refused():
    models = [build(), build()]
    generator = task().build_generator(models, Namespace())
    tokens = batch(sentences(3))
    with pytest.raises(Refusal, match="--path: 2 checkpoints"):
        generator.generate(models, {"net_input": {"src_tokens": tokens, "src_lengths": lengths_of(tokens)}})


@pytest.mark.parametrize(
    "options, given, message",
    [
        ({}, {"iter_decode_with_external_reranker": True}, "Expected --iter-decode-with-beam"),
        ({"decode_positions": "reference"}, {"iter_decode_with_beam": 3}, "Remove --iter-decode-with-beam"),
    ],
)
def test_wrong_options_of_decoding_are_refused(options, given, message):
    with pytest.raises(Refusal, match=message):
        task(**options).build_generator([build()], Namespace(**given))


def test_reference_positions_need_a_reference():
    model = build()
    tokens = batch(sentences(3))
    generator = task(decode_positions="reference").build_generator([model], Namespace())
    with pytest.raises(Refusal, match="the data has no references"):
        generator.generate([model], {"net_input": {"src_tokens": tokens, "src_lengths": lengths_of(tokens)}})


def test_reference_positions_have_the_reference_length_and_its_search():
    model = build()
    source, target = batch(sentences(*SOURCES)), batch(sentences(*TARGETS, seed=2))
    generator = task(decode_positions="reference").build_generator([model], Namespace())
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths_of(source)}, "target": target}
    found = generator.generate([model], sample)
    logits = run(model, source, target)["word_ins"]["out"].log_softmax(-1)
    for row, (hypothesis,) in enumerate(found):
        tokens = hypothesis["tokens"]
        assert len(tokens) == lengths_of(target)[row]
        expected = logits[row, : len(tokens)].gather(1, tokens.unsqueeze(1)).squeeze(1)
        close(hypothesis["positional_scores"], expected)


def test_inner_words_are_what_may_move():
    model = build()
    target = batch(sentences(*TARGETS))
    placement = model.decoder.place(model.encoder(batch(sentences(*SOURCES))), target)
    assert torch.equal(placement.inner, inner_words(target.ne(PAD)))

"""Output lengths without a model: options, files, noise, characters, and prefixes."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.sequence_generator import EnsembleModelWithAlignment

import fairseq_posenc.host.plugin  # noqa: F401  (first, because it patches fairseq)
from fairseq_posenc.core import Refusal
from fairseq_posenc.host.generation.lengths import LengthEnsemble, OutputLengths, Unit, with_smallest_remaining
from fairseq_posenc.host.generation.options import OutputLengthConfig
from fairseq_posenc.host.models.layers.length_predictor import LengthPredictor
from fairseq_posenc.host.tasks.translation import PositionTranslation, PositionTranslationConfig
from fairseq_posenc.testing import models

START, PAD, END, A, LONG = 0, 1, 2, 4, 5  # words of the dictionary. "a" has one character, "long@@" has four
CRITERION = "posenc_label_smoothed_cross_entropy"


@pytest.fixture(scope="module")
def dictionary():
    found = Dictionary()
    for word in ("a", "long@@"):
        found.add_symbol(word)
    return found


@pytest.fixture
def lengths(dictionary):
    def make(read_as="token", **options) -> OutputLengths:
        made = OutputLengths(OutputLengthConfig(**{"seed": 1, **options}), dictionary, dictionary)
        if read_as is not None:
            made.add_model(model(read_as))
        return made

    return make


def model(unit: str):
    """A model with only the parts that output lengths need."""
    card = SimpleNamespace(name=f"by_{unit}", side_inputs=(SimpleNamespace(name="target_length"),))
    method = SimpleNamespace(card=card, options=SimpleNamespace(unit=unit))
    return SimpleNamespace(decoder=SimpleNamespace(position=SimpleNamespace(methods=[method])))


def generator(longest=20, **changes):
    found = SimpleNamespace(
        model=LengthEnsemble.__new__(LengthEnsemble), match_source_len=False, max_len_a=0.0, max_len_b=longest, max_len=100,
        min_len=1, eos=END, pad=PAD,
    )  # fmt: skip
    return SimpleNamespace(**{**vars(found), **changes})


def sample(*targets, sources=None) -> dict:
    def padded(rows):
        width = max(map(len, rows))
        return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])

    words = padded(sources or [[A, A, END]] * len(targets))
    return {
        "id": torch.arange(len(targets)),
        "target": padded(targets),
        "net_input": {"src_tokens": words, "src_lengths": words.ne(PAD).sum(1)},
    }


def refusal(call) -> str:
    with pytest.raises(Refusal) as raised:
        call()
    text = str(raised.value)
    assert text.startswith("fairseq_posenc: ") and "\n" not in text
    return text


# --- options and files ---


@pytest.mark.parametrize(
    "options, words",
    [
        ({"length_from": "0"}, ["--length-from 0", "'0' is not a length", "whole number from 1"]),
        ({"length_from": "-3"}, ["'-3' is not a length"]),
        ({"length_from": "9999999"}, ["'9999999' is not a length"]),
        ({"length_from": "refrence"}, ["refrence", "no such file", "reference, source, predictor, a number"]),
        ({"length_ratio": 0.0}, ["--length-ratio 0.0: not allowed. Expected a number above 0"]),
        ({"length_ratio": float("nan")}, ["--length-ratio nan: not allowed. Expected a number above 0"]),
        ({"length_ratio": 1e9}, ["below 1000"]),
        ({"length_noise": -2}, ["--length-noise -2: not allowed. Expected at least 0"]),
    ],
    ids=str,
)
def test_options_that_are_wrong(lengths, options, words):
    line = refusal(lambda: lengths(**options))
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    "text, words",
    [
        ("3\nfour\n", ["line 2", "'four' is not a length"]),
        ("3\n\n", ["line 2", "'' is not a length"]),
        ("3\n0\n", ["line 2", "'0' is not a length"]),
        ("3\n1.5\n", ["line 2", "'1.5' is not a length"]),
        ("\xff", ["lengths"]),
    ],
    ids=["words", "empty", "zero", "half", "encoding"],
)
def test_files_that_are_wrong(lengths, tmp_path, text, words):
    (tmp_path / "lengths").write_bytes(text.encode("latin-1"))
    line = refusal(lambda: lengths(length_from=str(tmp_path / "lengths")))
    assert all(word in line for word in words), line


@pytest.mark.parametrize("text, count", [("3\n4\n", 2), ("3\n" * 7, 7), ("", 0)])
def test_files_of_another_number_of_sentences(lengths, tmp_path, text, count):
    (tmp_path / "lengths").write_text(text)
    asked = lengths(length_from=str(tmp_path / "lengths"))
    assert f"has {count} lengths. Expected 3, one per sentence of test" in refusal(lambda: asked.require_lines(3, "test"))


def test_two_units_in_one_model(lengths):
    asked = lengths("char")
    assert "by_token: the output length is counted in unit=token, but another method uses unit=char" in refusal(
        lambda: asked.add_model(model("token"))
    )


# --- requested lengths ---


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, [1, 3, 0]),
        ({"length_from": "reference", "length_ratio": 1.5}, [2, 5, 0]),
        ({"length_from": "source", "length_ratio": 0.5}, [1, 1, 1]),
        ({"length_from": "source", "length_ratio": 0.1}, [1, 1, 1]),
        ({"length_from": "12"}, [12, 12, 12]),
        ({"length_from": "12", "length_ratio": 0.5}, [6, 6, 6]),
    ],
    ids=str,
)
def test_asked_lengths(lengths, options, wanted):
    batch = sample([A, END], [A, LONG, A, END], [END])
    assert lengths(**options)._asked(batch).tolist() == wanted


def test_sentences_that_are_generated_have_a_word(lengths):
    batch = sample([A, END], [END])
    lengths().ask(batch, generator(), None)
    assert batch["net_input"]["asked_length"].tolist() == [1, 1]


def test_lengths_of_a_file_belong_to_their_sentences(lengths, tmp_path):
    (tmp_path / "lengths").write_text("3\n4\n5\n")
    batch = sample([A, END], [A, END])
    batch["id"] = torch.tensor([2, 0])
    asked = lengths(length_from=str(tmp_path / "lengths"))
    assert asked._asked(batch).tolist() == [5, 3]
    del batch["id"]
    assert "supported only by fairseq-generate" in refusal(lambda: asked._asked(batch))


def test_no_reference(lengths):
    batch = {**sample([A, END]), "target": None}
    assert "there are no references" in refusal(lambda: lengths()._asked(batch))


@pytest.mark.parametrize(
    "options, changes, words",
    [
        (
            {"length_from": "21"},
            {},
            ["sentence 0", "requested length is 21. Expected at most 20", "--max-len-b 20", "request a shorter output"],
        ),
        ({"length_from": "500"}, {"max_len_b": 900}, ["requested length is 500. Expected at most 99", "--max-target-positions"]),
        ({"length_ratio": 10.0}, {}, ["sentence 1", "requested length is 30. Expected at most 20"]),
        ({"length_from": "9"}, {"match_source_len": True}, ["length is 9. Expected at most 3", "Leave --match-source-len out"]),
        ({"length_from": "2", "length_eos": "exact"}, {"min_len": 3}, ["exact", "length is 2", "--min-len 3"]),
    ],
    ids=str,
)
def test_lengths_without_room(lengths, options, changes, words):
    line = refusal(lambda: lengths(**options).ask(sample([A, END], [A, A, A, END]), generator(**changes), None))
    assert all(word in line for word in words), line


def test_characters(dictionary, lengths):
    unit = Unit("char", dictionary)
    assert unit.of_sentences(torch.tensor([[A, LONG, A, END], [A, END, PAD, PAD]])).tolist() == [8, 2]
    assert unit.of_prefixes(torch.tensor([[END, A, LONG, A]])).tolist() == [[0, 2, 6, 8]]
    batch = sample([LONG, A, END])
    lengths("char").add_reference(batch)
    assert batch["net_input"]["side_inputs"]["target_length"].tolist() == [6]


# --- prefixes ---


def completed(asked, prefix, length):
    return asked._complete(torch.tensor(prefix), torch.tensor([length] * len(prefix)), END, PAD).tolist()


def test_a_prefix_of_the_whole_length_ends_there(lengths):
    asked = lengths(length_eos="exact")
    assert completed(asked, [[A, A], [A, PAD], [A, LONG]], 2) == [[A, A, END], [A, PAD, PAD], [A, LONG, END]]
    assert completed(asked, [[A, END]], 1) == [[A, END, PAD]]
    by_character = lengths("char", length_eos="exact")
    # The prefix is one character longer than the requested length. This is allowed, because the last token of the prefix
    # is a piece of a word.
    assert completed(by_character, [[A, LONG]], 5) == [[A, LONG, END]]


@pytest.mark.parametrize(
    "end, prefix, length, wrong",
    [
        ("exact", [A, A, A], 2, True),
        ("exact", [A, END, PAD], 2, True),
        ("min", [A, END, PAD], 2, True),
        ("min", [A, A, A], 2, False),
        ("exact", [A, A, PAD], 2, False),
    ],
)
def test_prefixes_that_contradict_a_length(lengths, end, prefix, length, wrong):
    asked = lengths(length_eos=end)
    if wrong:
        assert f"--prefix-size 3 --length-eos {end}: a prefix does not fit" in refusal(lambda: completed(asked, [prefix], length))
    else:
        assert completed(asked, [prefix], length)[0][:2] == prefix[:2]


@pytest.mark.parametrize("end", ["min", "exact"])
def test_a_predicted_length_and_a_prefix_are_refused(lengths, end):
    """The prefix is checked before the encoder runs. At this time, the predicted length is not known."""
    asked = lengths(length_from="predictor", length_eos=end)
    line = refusal(lambda: asked.ask(sample([A, A, END]), generator(), torch.tensor([[A, A]])))
    assert f"--length-from predictor: not supported with --prefix-size and --length-eos {end}" in line
    prefix = torch.tensor([[A, A]])
    assert lengths(length_from="predictor").ask(sample([A, A, END]), generator(), prefix) is prefix


@pytest.mark.parametrize("end", ["free", "min", "exact"])
def test_only_a_free_end_leaves_the_start_symbol_possible(lengths, end, monkeypatch):
    """<s> is not printed. As a word, it would make the output shorter than the requested length."""
    ensemble = LengthEnsemble([torch.nn.Module()], lengths(length_from="2", length_eos=end))
    monkeypatch.setattr(EnsembleModelWithAlignment, "forward_decoder", lambda *args: (torch.zeros(1, 8), None))
    asked = {"asked_length": [torch.tensor([2])], "last_step": [torch.tensor([9])]}
    scores, _ = ensemble.forward_decoder(torch.tensor([[END]]), [asked], [{}])
    hidden = {"free": [], "min": [START, END], "exact": [START, END]}[end]
    assert scores.isinf()[0].nonzero().flatten().tolist() == hidden


# --- noise ---


def test_noise_repeats_by_seed_epoch_and_sentence(lengths):
    numbers = list(range(500))

    def draw(epoch=1, **options):
        asked = lengths(length_noise=3, **options)
        asked.epoch = epoch
        return asked.draw_noise(numbers)

    first = draw()
    assert first.equal(draw()) and not first.equal(draw(epoch=2)) and not first.equal(draw(seed=2))
    assert lengths(length_noise=3).draw_noise([7, 3]).tolist() == [int(first[7]), int(first[3])]  # independent of the batch
    assert sorted(set(first.tolist())) == [-3, -2, -1, 0, 1, 2, 3]
    assert abs(first.float().mean()) < 0.3


def test_noise_is_of_training_alone(lengths):
    asked = lengths(length_noise=3)
    batch = sample(*[[A, A, A, A, END]] * 40)
    asked.add_reference(batch)
    assert set(batch["net_input"]["side_inputs"]["target_length"].tolist()) == {4}
    asked.add_reference(batch, noisy=True)
    assert set(batch["net_input"]["side_inputs"]["target_length"].tolist()) == set(range(1, 8))
    empty = sample(*[[END]] * 40)
    asked.add_reference(empty, noisy=True)
    assert set(empty["net_input"]["side_inputs"]["target_length"].tolist()) == {0, 1, 2, 3}


def test_how_far_past_its_length_a_sentence_may_go():
    assert with_smallest_remaining("ldpe+sinusoidal", 4) == "ldpe:min_remaining=-4+sinusoidal"
    assert with_smallest_remaining("ldpe:min_remaining=-1", 4) == "ldpe:min_remaining=-1"
    assert with_smallest_remaining("lrpe+shaw:max_distance=8", 4) == "lrpe+shaw:max_distance=8"
    assert with_smallest_remaining("ldpe", 0) == "ldpe"


# --- the predictor ---


@pytest.fixture
def encoded():
    """Return the encoder output of two source sentences of 3 and 1 tokens, with their </s>."""
    states = torch.arange(16.0).view(4, 2, 2)  # [S, B, C]
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    lengths = torch.tensor([[4], [2]], dtype=torch.int32)
    return {"encoder_out": [states], "encoder_padding_mask": [padding], "src_lengths": [lengths]}


def test_the_predictor_reads_the_mean_of_the_words(encoded):
    predictor = LengthPredictor(2, 1.0, stop_gradient=False)
    mean = torch.stack([encoded["encoder_out"][0][:, 0].mean(0), encoded["encoder_out"][0][:2, 1].mean(0)])
    torch.testing.assert_close(predictor(encoded), mean @ predictor.weight.T)


def test_classes_are_differences_to_the_source(encoded):
    predictor = LengthPredictor(2, 0.5, stop_gradient=False)
    expected = predictor(encoded).log_softmax(-1)
    loss = predictor.loss(encoded, torch.tensor([5, 1]))
    torch.testing.assert_close(loss, -0.5 * torch.stack([expected[0, 130], expected[1, 128]]))
    assert predictor.length(torch.tensor([130, 128]), encoded).tolist() == [5, 1]
    far = predictor.loss(encoded, torch.tensor([500, 1]))
    torch.testing.assert_close(far[0], -0.5 * expected[0, 255])


@pytest.mark.parametrize("least, wanted", [(0, [5, 1]), (1, [5, 1]), (3, [5, 3]), (6, [6, 6])])
def test_predicted_lengths_are_at_least_the_minimum_length(encoded, lengths, least, wanted):
    """fairseq forbids </s> before --min-len tokens. With a shorter exact length, no hypothesis would be possible."""
    predictor = LengthPredictor(2, 1.0, stop_gradient=False)
    predictor.length = lambda likely, encoded: torch.tensor([5, 1])
    found = torch.nn.Module()
    found.encoder = SimpleNamespace(length_predictor=predictor)
    ensemble = LengthEnsemble([found], lengths(length_from="predictor", length_eos="exact"), least)
    assert ensemble._predict([encoded], 20).tolist() == wanted


@pytest.mark.parametrize("stopped", [True, False])
def test_the_gradient_may_stop_before_the_encoder(encoded, stopped):
    states = encoded["encoder_out"][0].requires_grad_()
    predictor = LengthPredictor(2, 1.0, stopped)
    predictor.loss(encoded, torch.tensor([5, 1])).sum().backward()
    assert (states.grad is None) is stopped and predictor.weight.grad.abs().sum() > 0


# --- validation ---


@pytest.fixture
def validating(dictionary, tmp_path):
    """Return a function that builds a task and a model, and returns the task.

    The task has the option --eval-bleu. The model has a length predictor.
    """

    def build(decoder: str, **options) -> PositionTranslation:
        for language in ("xx", "yy"):
            dictionary.save(str(tmp_path / f"dict.{language}.txt"))
        given = {"data": str(tmp_path), "source_lang": "xx", "target_lang": "yy", "eval_bleu": True, "seed": 1, **options}
        task = PositionTranslation.setup_task(PositionTranslationConfig(**given))
        args = Namespace(arch="posenc_transformer_tiny", decoder_position=decoder, length_loss_weight=1.0, criterion=CRITERION)
        ARCH_CONFIG_REGISTRY[args.arch](args)
        task.build_model(args)
        return task

    return build


def test_validation_controls_the_end_of_sentences(validating):
    """fairseq builds the generator of --eval-bleu in `build_model`, before the task stores that the model reads lengths."""
    assert isinstance(validating("ldpe", length_eos="exact").sequence_generator.model, LengthEnsemble)
    assert not isinstance(validating("sinusoidal").sequence_generator.model, LengthEnsemble)


@pytest.mark.parametrize(("option", "value", "given"), [("length_eos", "exact", "exact"), ("length_ratio", 1.2, "1.2")])
def test_a_model_that_reads_no_length_needs_a_source_of_lengths(option, value, given, validating):
    name = option.replace("_", "-")
    assert f"--{name} {given}: no effect, because" in refusal(lambda: validating("sinusoidal", **{option: value}))
    needed = {"length_from": "source", "length_eos": "exact"}
    assert isinstance(validating("sinusoidal", **{**needed, option: value}).sequence_generator.model, LengthEnsemble)


@pytest.mark.parametrize(
    ("option", "value"), [("length_from", "source"), ("length_ratio", 1.2), ("length_eos", "min"), ("segments_forced", "a")]
)
def test_training_without_decoding_refuses_options_of_decoding(option, value, validating):
    task = validating("ldpe", eval_bleu=False, **{option: value})
    name = option.replace("_", "-")
    message = refusal(lambda: task.begin_epoch(1, None))
    assert f" --{name} {value}: no effect" in message and message.endswith(f"Remove --{name}, or add --eval-bleu.")


def test_training_without_options_of_decoding_begins(validating):
    validating("ldpe", eval_bleu=False, length_noise=2).begin_epoch(1, None)
    validating("ldpe", length_from="source", length_eos="min").begin_epoch(1, None)


@pytest.mark.parametrize("beam", [0, -1])
def test_beam_search_needs_a_beam(beam, validating):
    task = validating("t5", eval_bleu=False)
    assert refusal(lambda: task.build_generator([], Namespace(beam=beam))) == (
        f"fairseq_posenc: --beam {beam}: not allowed. Expected at least 1. Increase --beam."
    )


def test_validation_refuses_predicted_tokens_for_a_model_that_counts_characters(validating):
    line = refusal(lambda: validating("ldpe:unit=char", length_from="predictor"))
    assert "the predictor counts tokens, but the model counts characters (unit=char)" in line


def test_a_target_that_is_padded_to_a_bucket_has_its_length():
    """With --num-batch-buckets, fairseq pads targets before it moves </s> to their beginning. The last </s> then remains."""
    decoder = models.build(length_loss_weight=1.0).decoder
    plain = torch.tensor([[2, 5, 6, 7, 1], [2, 5, 6, 7, 8], [2, 1, 1, 1, 1]])
    bucket = torch.tensor([[2, 5, 6, 7, 2, 1], [2, 5, 6, 7, 8, 2], [2, 2, 1, 1, 1, 1]])
    for tokens in (plain, bucket):
        assert (~decoder.without_target(tokens)).sum(1).tolist() == [4, 5, 1]

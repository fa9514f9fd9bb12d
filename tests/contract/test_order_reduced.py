"""Shuffled source words, and positions that are frozen in fine-tuning, as in Liu et al. (2021b)."""

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_posenc.core import Refusal
from fairseq_posenc.host.models.transformer.shuffle import WordShuffle
from fairseq_posenc.testing.models import END, batch, build, close, differ, logits, sentences
from tests.contract import probes
from tests.contract.cases import registered


def shuffled(text: list, probability: float = 1.0, seed: int = 0, padding: int = 2):
    """Return the sentences after one shuffle in training. Check that </s> and the padding do not move."""
    words = Dictionary()
    rows = [[words.add_symbol(word) for word in sentence.split()] + [words.eos()] for sentence in text]
    width = max(map(len, rows)) + padding
    tokens = torch.tensor([row + [words.pad()] * (width - len(row)) for row in rows])
    torch.manual_seed(seed)
    found = WordShuffle(words, probability)(tokens)
    for given, row in zip(rows, found.tolist()):  # </s> and the padding do not move
        assert row[len(given) - 1 :] == [words.eos()] + [words.pad()] * (width - len(given))
    return [" ".join(words[token] for token in row[: len(given) - 1]) for given, row in zip(rows, found.tolist())]


@pytest.mark.parametrize(
    "sentence, words",
    [
        ("a b c d e f g h", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("a@@ b c@@ d@@ e f g@@ h i", ["a@@ b", "c@@ d@@ e", "f", "g@@ h", "i"]),
        ("▁a b ▁c d e ▁f ▁g h", ["▁a b", "▁c d e", "▁f", "▁g h"]),
    ],
)
def test_words_move_as_wholes(sentence, words):
    orders = {shuffled([sentence], seed=seed)[0] for seed in range(6)}
    assert len(orders) > 3
    for order in orders:
        assert sorted(map(order.count, words)) == [1] * len(words) and len(order) == len(sentence), order


@pytest.mark.parametrize(
    "more", ["a@@ b@@ \u2581@@", " ".join(f"w{n}" for n in range(100)) + " \u2581"], ids=["subwords", "words"]
)
def test_a_symbol_of_sentencepiece_in_other_text(more):
    """A dictionary of other text can contain a symbol that begins with SentencePiece's mark. Words are shuffled nevertheless."""
    dictionary = Dictionary()
    for symbol in more.split():
        dictionary.add_symbol(symbol)
    row = [dictionary.add_symbol(word) for word in "c d e f g h i".split()] + [dictionary.eos()]
    torch.manual_seed(2)
    assert len(WordShuffle(dictionary, 1.0)(torch.tensor([row] * 20)).unique(dim=0)) > 10


def test_a_first_symbol_stays_at_the_beginning():
    """The source of a non-autoregressive model begins with <s>. The shuffle does not move this symbol."""
    words = Dictionary()
    row = [words.bos()] + [words.add_symbol(word) for word in "a b c d e f g h".split()] + [words.eos()]
    torch.manual_seed(1)
    found = WordShuffle(words, 1.0)(torch.tensor([row] * 50))
    assert (found[:, 0] == words.bos()).all() and (found[:, -1] == words.eos()).all() and len(found.unique(dim=0)) > 40


def test_every_sentence_has_its_own_order_and_a_probability():
    sentence = "a b c d e f g h i j k l"
    assert len(set(shuffled([sentence] * 20))) > 15
    kept = sum(row == sentence for row in shuffled([sentence] * 400, 0.25))
    assert 270 < kept < 330
    assert shuffled([sentence] * 5, 1e-9) == [sentence] * 5
    assert shuffled([sentence] * 5, seed=3) == shuffled([sentence] * 5, seed=3) != shuffled([sentence] * 5, seed=4)


def test_it_is_of_training_and_of_the_source_alone():
    model, plain = build("sinusoidal", encoder_shuffle_words=1.0), build("sinusoidal")
    source, target = torch.cat([torch.stack(sentences(1, 9, 9)), torch.full((2, 1), END)], 1), torch.stack(sentences(2, 8, 8))
    close(logits(model, source, target), logits(plain, source, target), 0)
    assert model.state_dict().keys() == plain.state_dict().keys()
    torch.manual_seed(5)
    differ(logits(model.train(), source, target), logits(plain, source, target), "nothing is shuffled")


def test_without_positions_an_order_changes_nothing():
    model = build("none", encoder_shuffle_words=1.0)
    source, target = batch(sentences(3, 9, 6), "left"), batch(sentences(4, 8, 5))
    before = logits(model, source, target)
    close(logits(model.train(), source, target), before)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_frozen_positions_stay_while_the_others_learn(side):
    model = build("learned", "learned", **{f"{side}_freeze_position": True}).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    source, target = torch.stack(sentences(5, 7)), torch.stack(sentences(6, 6))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    logits(model, source, target).square().sum().backward()
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    other = "decoder" if side == "encoder" else "encoder"
    assert f"{side}.position.methods.0.weight" not in changed and f"{other}.position.methods.0.weight" in changed
    assert f"{side}.embed_tokens.weight" in changed


def test_a_model_that_was_trained_with_its_positions_goes_on_without():
    model, frozen = (
        build("learned", "t5", seed=1),
        build("learned", "t5", encoder_freeze_position=True, decoder_freeze_position=True),
    )
    frozen.load_state_dict(model.state_dict())
    source, target = torch.stack(sentences(7, 7)), torch.stack(sentences(8, 6))
    close(logits(frozen, source, target), logits(model, source, target))


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"encoder_shuffle_words": 1.5}, "--encoder-shuffle-words 1.5: not allowed. Expected a probability from 0 to 1"),
        ({"encoder_shuffle_words": float("nan")}, "--encoder-shuffle-words nan: not allowed"),
        (
            {"encoder": "sinusoidal", "encoder_freeze_position": True},
            "--encoder-freeze-position: the methods at this site have no parameters",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, says):
    with pytest.raises(Refusal, match=says):
        build(**changes)


def test_words_with_side_inputs_keep_their_order():
    with registered(probes.Depth), pytest.raises(Refusal, match="not supported with the side input 'depth'"):
        build(encoder="depth", encoder_shuffle_words=0.5)

"""Positions of every language: the language token selects the table that a sentence reads."""

import pytest
import torch

from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions, Refusal
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import END, PAD, batch, build, close, differ, encode, logits

#: indices in the dictionary: two language tokens, and a word that is not a language token
ONE, OTHER, WORD = 4, 5, 9
SPEC = "language:tokens=w0/w1"


def method(tokens: str = "one/other", site: str = "encoder"):
    torch.manual_seed(130)
    dims = Dims(8, 2, max_positions=6, max_key_positions=6, words={"one": ONE, "other": OTHER, "word": WORD})
    return parsing.build(f"language:tokens={tokens}", dims.at(site), site)[0]


def vectors(method, rows, start: int = 0, state=None):
    """Return the vectors that the method adds to embeddings that are zero."""
    at, tokens = Positions.counted(start, len(rows[0])), torch.tensor(rows)
    return method.embed(torch.zeros(*tokens.shape, 8), tokens, AttentionContext(at, at, state=state))


def test_one_language_is_learned():
    language, learned = (parsing.build(name, Dims(8, 2, max_positions=6), "encoder")[0] for name in ("language", "learned"))
    learned.weight.data = language.weight.data[0]
    rows = [[7, 8, 9, 1], [7, 8, 1, 1]]
    assert torch.equal(vectors(language, rows), vectors(learned, rows))


@pytest.mark.parametrize("rows", [[[ONE, WORD, WORD], [OTHER, WORD, WORD]], [[WORD, WORD, ONE], [WORD, OTHER, ONE]]])
def test_sentences_of_one_batch_read_their_own_table(rows):
    """The language token can be at any place of a source. The first language token counts."""
    language = method()
    found = vectors(language, rows)
    assert torch.equal(found[0], language.weight[0, 2:5]) and torch.equal(found[1], language.weight[1, 2:5])
    found[1].sum().backward()
    grad = language.weight.grad.abs().sum(-1)
    assert grad[0].eq(0).all() and grad[1].tolist() == [0, 0, 8, 8, 8, 0, 0, 0]


def test_a_target_begins_with_its_language_or_has_it_second():
    language = method(site="decoder")
    found = vectors(language, [[OTHER, WORD, ONE], [END, OTHER, ONE], [END, PAD, PAD]])
    table = language.weight
    assert torch.equal(found[0], table[1, 2:5])
    assert torch.equal(found[1], torch.cat([table[0, 2:3], table[1, 3:5]]))  # </s> precedes the language token
    assert torch.equal(found[2, 0], table[0, 2])


@pytest.mark.parametrize("first", [[ONE, OTHER, OTHER, ONE], [END, END, END, END]])
def test_decoding_step_by_step(first):
    """Beams are reordered across sentences. The language token is the first or the second word."""
    model = build(encoder=SPEC, decoder=SPEC)
    source = batch([torch.tensor([ONE, 7, 8, 9]), torch.tensor([OTHER, 9])] * 2, "left")
    prefix, state = torch.tensor(first)[:, None], {}
    second = torch.tensor([OTHER, ONE, ONE, OTHER]) if first[0] == END else torch.tensor([7, 8, 9, 7])
    encoded = encode(model, source)
    for step, order in enumerate(([1, 0, 3, 2], [3, 3, 0, 1], [0, 2, 1, 1])):
        stepped, _ = model.decoder(prefix, encoded, incremental_state=state)
        close(stepped, model.decoder(prefix, encoded)[0][:, -1:])
        prefix = torch.cat([prefix, (second if step == 0 else second * 0 + 6 + step)[:, None]], 1)
        prefix, order = prefix[order], torch.tensor(order)
        encoded = model.encoder.reorder_encoder_out(encoded, order)
        model.decoder.reorder_incremental_state_scripting(state, order)


def test_the_language_changes_the_output():
    model = build(encoder=SPEC)
    with torch.no_grad():
        # make the token embeddings equal, so that the language changes only the position vectors
        model.encoder.embed_tokens.weight[OTHER] = model.encoder.embed_tokens.weight[ONE]
    target = torch.tensor([[END, 7, 8]])
    differ(*(logits(model, torch.tensor([[token, 8, 9]]), target) for token in (ONE, OTHER)), "both languages are one")


@pytest.mark.parametrize(
    "tokens, says",
    [
        ("one/third", r"no token 'third'\. Expected language tokens, such as __en__ .*tokens="),
        ("one/", r"no token ''"),
        ("one/other/one", "contains a token twice"),
    ],
)
def test_tokens_that_name_no_language_are_refused(tokens, says):
    with pytest.raises(PositionError, match=says) as error:
        method(tokens)
    assert "\n" not in str(error.value)


def test_a_model_names_the_missing_token():
    with pytest.raises(Refusal, match="no token '__en__'"):
        build(encoder="language:tokens=__en__/__de__")


@pytest.mark.parametrize(
    "site, rows, says",
    [
        (
            "encoder",
            [[ONE, WORD], [WORD, WORD]],
            r"a source sentence has no language token\. Expected one of one, other\. "
            r".*--encoder-langtok src",
        ),
        ("decoder", [[ONE, WORD], [END, WORD]], r"a target sentence has no language token at its start\. .*--decoder-langtok"),
        ("decoder", [[END, WORD, ONE]], "a target sentence"),
    ],
)
def test_a_sentence_without_language_is_refused(site, rows, says):
    with pytest.raises(PositionError, match=says) as error:
        vectors(method(site=site), rows)
    assert "\n" not in str(error.value)


def test_a_hypothesis_without_language_is_refused():
    model = build(decoder=SPEC)
    encoded, state = encode(model, torch.tensor([[7, 8]])), {}
    model.decoder(torch.tensor([[END]]), encoded, incremental_state=state)
    with pytest.raises(PositionError, match=r"a target sentence has no language token at its start\. Expected one of w0, w1"):
        model.decoder(torch.tensor([[END, 8]]), encoded, incremental_state=state)

"""Exact values of the encodings of output lengths, and errors of the authors' code."""

import pytest
import torch
from torch.testing import assert_close

from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions, SideInputs
from fairseq_posenc.ops.characters import printed_characters
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing.models import batch, build, close, differ, sentences

PAPER = "layout=interleaved,grid=paper"


def vectors(spec: str, lengths: list, steps: int, width: int = 8, start: int = 0) -> torch.Tensor:
    """Return the vectors that are added at every step: [B, T, C]."""
    method = parsing.build(spec, Dims(width, 2, vocab_size=10).at("decoder"), "decoder")[0]
    at = Positions.counted(start, steps)
    side = SideInputs({"target_length": torch.tensor(lengths)}, {side.name: side for side in method.card.side_inputs})
    x = torch.zeros(len(lengths), steps, width)
    return method.embed(x, torch.full((len(lengths), steps), 5), AttentionContext(at, at, causal=True, side=side))


def test_the_difference_alone_matters():
    """The paper's LDPE(7, 3) equals LDPE(12, 8), because 4 words remain in both."""
    seven, twelve = vectors("ldpe", [7 - 1, 12 - 1], 10)
    assert_close(seven[2], twelve[7], rtol=0, atol=0)


def test_where_the_sentence_ends_nothing_is_left():
    assert_close(vectors(f"ldpe:{PAPER}", [4], 5)[0, 4], torch.tensor([0.0, 1.0] * 4), rtol=0, atol=0)


def test_three_words_left():
    found = vectors(f"ldpe:{PAPER}", [3], 1)[0, 0]
    assert_close(found, torch.tensor([0.1411, -0.9900, 0.2955, 0.9553, 0.0300, 0.9996, 0.0030, 1.0000]), rtol=0, atol=6e-5)


def test_a_length_of_ten_thousand_gives_sinusoids():
    """With </s>, the length is 10,000. This is the base of the usual sinusoids. Positions start at 1."""
    plain = parsing.build("sinusoidal:origin=zero", Dims(8, 2).at("decoder"), "decoder")[0]
    at = Positions.counted(1, 6)
    wanted = plain.embed(torch.zeros(1, 6, 8), None, AttentionContext(at, at))
    assert_close(vectors("lrpe", [9999], 6), wanted)


def test_a_length_of_nothing_but_the_end():
    steps = torch.arange(1.0, 7)
    wanted = torch.stack([steps.sin(), steps.cos()], -1).repeat(1, 4)
    assert_close(vectors(f"lrpe:{PAPER}", [0], 6)[0], wanted)


@pytest.mark.parametrize("spec", ["ldpe", "lrpe"])
def test_lengths_below_0_are_refused(spec):
    with pytest.raises(PositionError, match=rf"{spec} \(decoder\): the side input 'target_length' contains -1\. Expected"):
        vectors(spec, [3, -1], 2)


@pytest.mark.parametrize("spec", ["ldpe", "ldpe:unit=char", "lrpe"])
def test_every_sentence_has_its_own_length(spec):
    """The authors' code uses the positions of sentence 0 for all sentences. In this test, sentence 0 is the shortest sentence."""
    model = build(decoder=spec)
    source, targets = torch.stack(sentences(1, 6, 6, 6)), sentences(2, 2, 7, 9)
    lengths = torch.tensor([1, 6, 8])
    together = model(source, None, batch(targets), side_inputs={"target_length": lengths})[0]
    for row, words in enumerate(targets):
        alone = model(source[row : row + 1], None, words[None], side_inputs={"target_length": lengths[row : row + 1]})[0]
        close(together[row, : len(words)], alone[0])


@pytest.mark.parametrize("spec", ["ldpe", "lrpe"])
def test_two_lengths_differ_from_the_first_step_on(spec):
    model = build(decoder=spec)
    source, target = torch.stack(sentences(3, 5)), torch.stack(sentences(4, 1))
    short, long = (model(source, None, target, side_inputs={"target_length": torch.tensor([n])})[0] for n in (3, 9))
    differ(short, long, "the length changes nothing")


@pytest.mark.parametrize("spec, same", [("ldpe", True), ("ldpe:min_remaining=-3", True), ("lrpe", False)])
def test_ten_words_past_the_length(spec, same):
    """Ten words after the requested length, values are finite. LDPE stays constant, while the authors' code fails."""
    found = vectors(spec, [2], 13)[0]
    assert found.isfinite().all()
    assert found[-1].equal(found[-2]) is same


def test_the_smallest_remaining_length():
    found = vectors("ldpe:min_remaining=-2", [1], 6)[0]
    assert found[2].ne(found[1]).any() and found[3].ne(found[2]).any() and found[4].equal(found[3])


def test_the_offset_of_the_authors():
    assert_close(vectors("ldpe:offset=2", [3], 3), vectors("ldpe", [5], 3))
    assert_close(vectors("lrpe:offset=1", [3], 3), vectors("lrpe", [3], 3, start=1))


def test_printed_characters():
    pieces = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "▁the": 4, "re": 5, "▁": 6}
    assert printed_characters(pieces, 8).tolist() == [0, 0, 0, 5, 4, 2, 1, 0]
    units = {"</s>": 2, "the": 3, "re@@": 4, "@@": 5}
    assert printed_characters(units, 6).tolist() == [0, 0, 0, 4, 2, 0]
    words = {"</s>": 2, "the": 3, "in": 4}  # a vocabulary of whole words is read as that of subword-nmt
    assert printed_characters(words, 5).tolist() == [0, 0, 0, 4, 3]


def test_one_token_of_the_text_does_not_change_the_type_of_the_subwords():
    units = {"</s>": 2, "the": 3, "re@@": 4, "in@@": 5, "▁": 6}
    assert printed_characters(units, 7).tolist() == [0, 0, 0, 4, 2, 2, 2]
    pieces = {"</s>": 2, "▁the": 3, "▁in": 4, "re": 5, "@@": 6}
    assert printed_characters(pieces, 7).tolist() == [0, 0, 0, 4, 3, 2, 2]
    words = {"</s>": 2, "▁the": 3, **{f"w{number:03}": 4 + number for number in range(200)}}
    assert printed_characters(words, 204).tolist() == [0, 0, 0, 5, *[5] * 200]


def test_a_vocabulary_of_single_characters():
    """SentencePiece's model_type=char has one symbol that begins with "▁": the blank itself."""
    symbols = {"</s>": 2, "▁": 3, **{chr(0x4E00 + number): 4 + number for number in range(200)}}
    assert printed_characters(symbols, 204).tolist() == [0, 0, 0, *[1] * 201]

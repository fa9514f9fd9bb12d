"""Complex embeddings: exact values, the properties that the paper states, and sentences with different words."""

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions
from fairseq_posenc.registry import spec as parsing

from .cases import place_of, randomise
from .oracle_complex import ORACLES, embed_words

WORDS, WIDTH = 20, 8


def method(options: str = "", width: int = WIDTH):
    torch.manual_seed(0)
    return parsing.build(f"complex:{options}", Dims(width, 1, vocab_size=WORDS), "encoder")[0].double()


def waves(spec, x, tokens, ids=None):
    at = Positions.counted(0, x.size(1)) if ids is None else Positions(torch.tensor([ids]))
    found = spec.embed(x, tokens, AttentionContext(at, at))
    return torch.complex(*found.chunk(2, -1))


@pytest.fixture
def sentence():
    torch.manual_seed(1)
    return torch.randn(2, 9, WIDTH, dtype=torch.double), torch.randint(4, WORDS, (2, 9))


@pytest.mark.parametrize("frequencies", ["word_and_dimension", "word", "dimension"])
def test_every_word_has_its_own_frequencies(frequencies, sentence):
    spec = randomise(method(f"frequencies={frequencies}"))
    x, tokens = sentence
    at = Positions.counted(3, 9)
    found = spec.embed(x, tokens, AttentionContext(at, at)).detach().numpy()
    place = place_of(spec, ORACLES[0], {"frequencies": frequencies}, "encoder")
    for row in range(2):
        expected = embed_words(x[row].numpy(), range(3, 12), tokens[row].tolist(), place)
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=1e-12)


def test_the_modulus_knows_no_position_and_an_offset_is_a_turn(sentence):
    spec = randomise(method("frequencies=dimension"))
    x, tokens = sentence[0][:1, :1].expand(1, 9, -1), sentence[1][:1, :1].expand(1, 9)
    g = waves(spec, x, tokens)[0].detach()
    torch.testing.assert_close(g.abs(), g[:1].abs().expand_as(g))
    turn = torch.exp(2j * spec.frequency.detach())
    torch.testing.assert_close(g[2:], g[:-2] * turn)


def test_without_frequencies_and_phases_there_is_no_position(sentence):
    spec = method()
    with torch.no_grad():
        spec.frequency.zero_()
    x = torch.cat([sentence[0][..., : WIDTH // 2], torch.zeros(2, 9, WIDTH // 2)], -1)
    assert torch.equal(spec.embed(x, sentence[1], AttentionContext(Positions.counted(0, 9), Positions.counted(0, 9))), x)


def test_a_quarter_turn():
    spec = method("frequencies=dimension", width=2)
    with torch.no_grad():
        spec.frequency.fill_(torch.pi / 2)
    found = waves(spec, torch.tensor([[[2.0, 0.0]]]).double(), torch.tensor([[5]]))
    assert found.item() == pytest.approx(2j, abs=1e-12)


def test_frequencies_begin_as_those_of_the_code():
    first = 10000.0 ** (-np.array([0, 0, 2, 2]) / 4)
    for options in ("", "frequencies=dimension"):
        np.testing.assert_allclose(method(options).frequency.detach().expand(WORDS, -1), np.tile(first, (WORDS, 1)), rtol=1e-6)
    word = method("frequencies=word").frequency
    assert word.shape == (WORDS, 1) and 1e-4 <= word.min() < word.max() <= 1


@pytest.mark.parametrize(
    "options, width, says",
    [
        ("", 7, "the embedding dimension 7 is odd"),
        ("frequencies=word,learned=false", 8, "Remove learned=false"),
        ("frequencies=both", 8, "frequencies='both' is not allowed"),
    ],
)
def test_what_cannot_be_is_refused(options, width, says):
    with pytest.raises(PositionError, match=says):
        method(options, width)

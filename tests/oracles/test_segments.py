"""Segments of sentences with separators: the words that the frame of the other tests does not have."""

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Dims, PositionError, Positions
from fairseq_posenc.registry import spec as parsing

from . import oracle_segments
from .cases import HEADS, MAX_POSITIONS, WIDTH, assert_close, cases, place_of, randomise, spec_of
from .oracle_segments import AT_INPUT, PER_HEAD

LAYERS = 3
WORDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<sep>": 5, "a": 6, "b": 7}
SENTENCES = [
    "a b </s> b </s> a a </s>".split(),
    "a </s> </s> b </s> </s> </s> a </s> </s> </s> b".split(),  # more segments than any table has rows
    "</s> </s> <sep> <sep> b <sep> a".split(),  # segments of a separator alone
    "b <sep> a </s> <sep> a b <sep> <sep> b".split(),  # the separator of one case is any word in another
    "a".split(),
]
ONE_SEGMENT = ["a b a </s>".split(), "b </s>".split(), "a".split()]  # what a translation model reads: padding starts no segment


def build(options, words=WORDS):
    torch.manual_seed(4)
    dims = Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS, WORDS["<pad>"], words=words)
    return randomise(parsing.build(spec_of("segments", options), dims.at("encoder"), "encoder")[0])


def context(sentences):
    rows = [torch.tensor([WORDS[word] for word in sentence]) for sentence in sentences]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=WORDS["<pad>"])
    at = Positions.counted(0, tokens.size(1))
    return AttentionContext(at, at, key_padding=tokens.eq(WORDS["<pad>"]), tokens=tokens)


def biases(method, oracle, options, site, layer, sentences):
    longest = max(map(len, sentences))
    out = np.full((len(sentences), HEADS, longest, longest), np.nan)
    for b, head in np.ndindex(out.shape[:2]):
        at = place_of(method, oracle, options, site, layer=layer, head=head)
        for t, s in np.ndindex(len(sentences[b]), len(sentences[b])):
            out[b, head, t, s] = oracle_segments.bias(sentences[b], t, s, at)
    return out


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is PER_HEAD))
def test_bias(oracle, options, site):
    method, ctx = build(options), context(SENTENCES)
    for layer in range(LAYERS):
        assert_close(method.bias(ctx.replace(layer=layer)), biases(method, oracle, options, site, layer, SENTENCES), oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is AT_INPUT))
@pytest.mark.parametrize("sentences", [SENTENCES, ONE_SEGMENT], ids=["many", "one"])
def test_embed(oracle, options, site, sentences):
    method, ctx = build(options), context(sentences)
    at = place_of(method, oracle, options, site)
    x = torch.randn(*ctx.tokens.shape, WIDTH, dtype=torch.double)
    expected = np.full(x.shape, np.nan)
    for b, words in enumerate(sentences):
        expected[b, : len(words)] = oracle_segments.embed(x[b, : len(words)].numpy(), range(len(words)), at, words)
    assert_close(method.embed(x, ctx.tokens, ctx), expected, oracle.atol)


def test_one_segment_has_no_bias_in_evaluation():
    """One number for all keys changes no softmax; in training the table still needs its gradient."""
    method, ctx = build({}), context(ONE_SEGMENT)
    assert method.bias(ctx) is None
    assert method.bias(context(SENTENCES[:1] + ONE_SEGMENT)) is not None
    for layer in range(LAYERS):
        expected = biases(method, PER_HEAD, {}, "encoder", layer, ONE_SEGMENT)
        assert_close(method.train().bias(ctx.replace(layer=layer)), expected, PER_HEAD.atol)


def test_no_tokens_no_bias():
    method = build({})
    assert method.bias(context(SENTENCES).replace(tokens=None)) is None


@pytest.mark.parametrize("place", ["heads", "input"])
def test_unknown_separator(place):
    with pytest.raises(PositionError, match="<end>"):
        build({"place": place, "separator": "<end>"})
    with pytest.raises(PositionError, match="</s>"):
        build({"place": place}, words={"<pad>": 1, "a": 6})

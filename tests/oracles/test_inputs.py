"""Methods that enter with the embeddings or before a layer, through their hooks."""

import dataclasses

import numpy as np
import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc import spec as parsing
from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.data.side.examples import RELATIONS

from . import reference
from .cases import (
    HEADS,
    MAX_POSITIONS,
    WIDTH,
    assert_close,
    cases,
    padding_mask,
    place_of,
    randomise,
    sentences_of,
    spec_of,
    with_side,
)  # fmt: skip

LAYERS, LENGTHS = 3, [6, 4, 1]
#: of the dictionary, after its padding symbol; </s> begins what the decoder reads
WORDS = ["</s>", "a", "bc@@", "def", "ghij@@"]


def by_id(oracle) -> bool:
    """Whether positions are all that matters: a GRU reads columns, which the encoder rolls to the right before."""
    return oracle.embed is not None and oracle.name not in ("rnn", "rr")


def counts_words(oracle) -> bool:
    """Whether the words are given to the method: segments would end at some."""
    return bool(registry.card(oracle.name).side_inputs)


def build(oracle, options, site, padding_idx=1):
    torch.manual_seed(3)
    counted = {word: padding_idx + 1 + number for number, word in enumerate(WORDS)}
    words = counted if counts_words(oracle) else {"</s>": 2, "a": padding_idx + 5, "b": padding_idx + 6}
    dims = Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS, padding_idx, 20, words, relations=RELATIONS)
    return randomise(parsing.build(spec_of(oracle.name, options), dims.at(site), site)[0])


def tokens_of(oracle, padding: torch.Tensor, padding_idx: int) -> torch.Tensor:
    if not counts_words(oracle):
        return torch.full(padding.shape, padding_idx + 5).masked_fill(padding, padding_idx)
    ids = (~padding).cumsum(1) - 1  # every word in turn, from the first on that is no padding
    return (padding_idx + 1 + ids % len(WORDS)).masked_fill(padding, padding_idx)


def begun(method, ctx):
    """The context of a forward, with what the method makes before its layers."""
    return ctx.replace(prepared={method: method.prepare(ctx)}) if "prepare" in method.hooks else ctx


def embedded(method, x, tokens, ctx):
    """What the host makes of embeddings: at the positions that the method gives, in evaluation."""
    ids = method.positions(ctx.queries.ids, ctx)
    at = ctx.queries if ids is ctx.queries.ids else Positions(ids)
    return method.embed(x, tokens, ctx.replace(queries=at, keys=at)) if "embed" in method.hooks else x


def expected(oracle, x, ids, padding, at):
    """The oracle on the real tokens of each sentence; nan at padding."""
    out = np.full(x.shape, np.nan)
    for b in range(len(x)):
        real = ~padding[b]
        words = [WORDS[column % len(WORDS)] for column in range(real.sum())]
        place = dataclasses.replace(at.of_sentence(b), words=words, side=oracle.side(b))
        out[b, real] = oracle.embed(x[b, real], [oracle.position(t, place) for t in ids[b, real]], place)
    return out


@pytest.mark.parametrize("padding_idx", [0, 1, 3])
@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.embed))
def test_right_padding(oracle, options, site, padding_idx):
    compare_embed(oracle, options, site, "right", padding_idx)


@pytest.mark.parametrize("oracle, options, site", cases(by_id))
def test_left_padding(oracle, options, site):
    compare_embed(oracle, options, site, "left")


def compare_embed(oracle, options, site, padding, padding_idx=1):
    method, mask = build(oracle, options, site, padding_idx=padding_idx), padding_mask(LENGTHS, padding)
    ids = torch.tensor([reference.count(row) for row in mask])
    x = torch.randn(*mask.shape, WIDTH, dtype=torch.double)
    at = Positions(ids, 0) if padding == "right" else Positions(ids)
    sentences = sentences_of(oracle, LENGTHS)
    ctx = with_side(
        AttentionContext(at, at, causal=site == "decoder", key_padding=mask), method, oracle, sentences, padding, len(mask)
    )
    out = embedded(method, x, tokens_of(oracle, mask, padding_idx), begun(method, ctx))
    place = place_of(method, oracle, options, site, padding_idx=padding_idx, sentences=sentences)
    assert_close(out, expected(oracle, x.numpy(), ids.numpy(), mask.numpy(), place), oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.before_layer))
def test_before_layer(oracle, options, site):
    method = build(oracle, options, site)
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    for at in (Positions.counted(0, 6), Positions(torch.tensor([[0, 2, 5, 9, 300, 1], [3, 1, 4, 1, 5, 9]]))):
        ids = np.broadcast_to(at.ids.numpy(), (2, 6))
        for layer in range(LAYERS):
            out = method.before_layer(x, AttentionContext(at, at, layer=layer, causal=site == "decoder"))
            place = place_of(method, oracle, options, site, layer=layer)
            wanted = np.array([oracle.before_layer(rows, at_ids, place) for rows, at_ids in zip(x.numpy(), ids)])
            assert_close(out, wanted, oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(by_id))
def test_embed_at_given_positions(oracle, options, site):
    method, tokens = build(oracle, options, site), tokens_of(oracle, torch.zeros(2, 6, dtype=torch.bool), 1)
    far = (oracle.reach or 301) - 1
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    for ids in (torch.tensor([[0, 2, 5, 9, far, 1], [3, 1, 4, 1, 5, 9]]), torch.tensor([[7, 8, 9, 10, 11, 3]])):
        at = Positions(ids)
        sentences = sentences_of(oracle, [6, 6])
        ctx = with_side(AttentionContext(at, at, causal=site == "decoder"), method, oracle, sentences)
        out = embedded(method, x, tokens, begun(method, ctx))
        none, ids = np.zeros((2, 6), bool), np.broadcast_to(ids.numpy(), (2, 6))
        place = place_of(method, oracle, options, site, sentences=sentences)
        assert_close(out, expected(oracle, x.numpy(), ids, none, place), oracle.atol)


PLAIN = reference.Oracle("", [])
INPUTS = ("query_input", "key_input", "value_input")


@pytest.mark.parametrize(
    "oracle, options, site", cases(lambda o: any(getattr(o, name) is not getattr(PLAIN, name) for name in INPUTS))
)
def test_inputs_of_projections_in_every_layer(oracle, options, site):
    method = build(oracle, options, site)
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    far = (oracle.reach or 301) - 1
    for at in (Positions.counted(3, 6), Positions(torch.tensor([[0, 2, 5, 9, far, 1], [3, 1, 4, 1, 5, 9]]))):
        ids = np.broadcast_to(at.ids.numpy(), (2, 6))
        ctx = begun(method, AttentionContext(at, at, causal=site == "decoder", cross=site == "cross"))
        for layer in range(LAYERS):
            place = place_of(method, oracle, options, site, layer=layer)
            for name in INPUTS:
                out = getattr(method, name)(x, at, ctx.replace(layer=layer))
                rows = zip(x.numpy(), ids)
                wanted = [[getattr(oracle, name)(*pair, place) for pair in zip(*row)] for row in rows]
                assert_close(out, np.array(wanted), oracle.atol)

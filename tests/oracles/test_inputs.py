"""Methods that enter with the embeddings or before a layer, through their hooks."""

import numpy as np
import pytest
import torch

from fairseq_posenc import spec as parsing
from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.data.side.examples import RELATIONS
from fairseq_posenc.testing import reference

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


def by_id(oracle) -> bool:
    """Whether positions are all that matters: a GRU reads columns, which the encoder rolls to the right before."""
    return oracle.embed is not None and oracle.name not in ("rnn", "rr")


def build(oracle, options, site, padding_idx=1):
    torch.manual_seed(3)
    dims = Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS, padding_idx, relations=RELATIONS)
    return randomise(parsing.build(spec_of(oracle.name, options), dims.at(site), site)[0])


def tokens_of(padding: torch.Tensor, padding_idx: int) -> torch.Tensor:
    return torch.full(padding.shape, padding_idx + 5).masked_fill(padding, padding_idx)


def expected(function, x, ids, padding, at):
    """The oracle on the real tokens of each sentence; nan at padding."""
    out = np.full(x.shape, np.nan)
    for b in range(len(x)):
        real = ~padding[b]
        out[b, real] = function(x[b, real], ids[b, real], at.of_sentence(b))
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
    ctx = with_side(AttentionContext(at, at, causal=site == "decoder", key_padding=mask), method, sentences, padding)
    out = method.embed(x, tokens_of(mask, padding_idx), ctx)
    place = place_of(method, oracle, options, site, padding_idx=padding_idx, sentences=sentences)
    assert_close(out, expected(oracle.embed, x.numpy(), ids.numpy(), mask.numpy(), place), oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.before_layer))
def test_before_layer(oracle, options, site):
    method = build(oracle, options, site)
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    none = np.zeros((2, 6), bool)
    for at in (Positions.counted(0, 6), Positions(torch.tensor([[0, 2, 5, 9, 300, 1], [3, 1, 4, 1, 5, 9]]))):
        ids = np.broadcast_to(at.ids.numpy(), (2, 6))
        for layer in range(LAYERS):
            out = method.before_layer(x, AttentionContext(at, at, layer=layer, causal=site == "decoder"))
            place = place_of(method, oracle, options, site, layer=layer)
            assert_close(out, expected(oracle.before_layer, x.numpy(), ids, none, place), oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(by_id))
def test_embed_at_given_positions(oracle, options, site):
    method, tokens = build(oracle, options, site), torch.full((2, 6), 7)
    far = (oracle.reach or 301) - 1
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    for ids in (torch.tensor([[0, 2, 5, 9, far, 1], [3, 1, 4, 1, 5, 9]]), torch.tensor([[7, 8, 9, 10, 11, 3]])):
        at = Positions(ids)
        sentences = sentences_of(oracle, [6, 6])
        out = method.embed(x, tokens, with_side(AttentionContext(at, at, causal=site == "decoder"), method, sentences))
        none, ids = np.zeros((2, 6), bool), np.broadcast_to(ids.numpy(), (2, 6))
        place = place_of(method, oracle, options, site, sentences=sentences)
        assert_close(out, expected(oracle.embed, x.numpy(), ids, none, place), oracle.atol)

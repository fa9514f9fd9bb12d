"""Whole attentions and their bare scores against the loops, for every method, option and site."""

import dataclasses

import numpy as np
import pytest
import torch

from . import reference
from .cases import (
    WIDTH,
    assert_close,
    attention_of,
    cases,
    padding_mask,
    reads_sentences,
    sentences_of,
    side_inputs_of,
)  # fmt: skip

LENGTHS, BATCH = [5, 3, 1], 2


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: not oracle.random))
def test_output_and_weights(oracle, options, site, padding):
    attn, place, projections = attention_of(oracle, options, site)
    lengths = LENGTHS if padding != "none" else LENGTHS[:1]
    mask = padding_mask(lengths, padding)
    key = torch.randn(len(lengths), max(lengths), WIDTH, dtype=torch.double)
    query, value = (torch.randn(len(lengths), 4, WIDTH).double(), torch.randn_like(key)) if site == "cross" else (key, key)
    sentences = sentences_of(oracle, lengths)
    place = dataclasses.replace(place, sentences=sentences)
    side = side_inputs_of(attn.positions.methods, sentences, max(lengths), padding)
    expected, weights = reference.attention(oracle, place, projections, *(x.numpy() for x in (query, key, value, mask)))
    for need_weights in (True, False):
        given = None if padding == "none" else mask
        inputs = (x.transpose(0, 1) for x in (query, key, value))
        out, ours = attn(*inputs, key_padding_mask=given, need_weights=need_weights, side_inputs=side)
        assert_close(out.transpose(0, 1), expected, oracle.atol)
        if need_weights and oracle.head is None and oracle.output is None:
            assert_close(ours, weights, oracle.atol)


def positions(oracle, kind: str):
    """Query ids [T] or [B, T] and key ids [S] or [B, S]: far apart, out of order or repeated, never 0, 1, 2, ..."""
    far = oracle.reach or 300
    if kind == "shifted":
        return np.arange(4) + far - 4, np.arange(6) + far - 8
    generator = np.random.default_rng(0)
    if kind == "scattered":
        return generator.integers(0, far, 4), generator.integers(0, far, 6)
    return generator.integers(0, min(far, 30), (BATCH, 4)), generator.integers(0, min(far, 30), (BATCH, 6))


@pytest.mark.parametrize("kind", ["counted", "shifted", "scattered", "of each sentence"])
@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: not (oracle.random or oracle.head or oracle.output)))
def test_scores(oracle, options, site, kind):
    if kind == "counted":
        whole = oracle.row is not None or reads_sentences(oracle)  # rows and trees are those of one sentence
        keys = 4 if whole and site != "cross" else 6
        compare_scores(oracle, options, site, (np.arange(4), np.arange(keys)), ())
    elif oracle.row is None and not reads_sentences(oracle):
        ids = positions(oracle, kind)
        compare_scores(oracle, options, site, ids, map(torch.from_numpy, ids))


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.real))
def test_scores_at_real_positions(oracle, options, site):
    ids = np.array([0, 0.5, 7.25, 31.125]), np.array([0, 0.75, 2.25, 9, 40.5, 300.25])
    compare_scores(oracle, options, site, ids, map(torch.from_numpy, ids))


def compare_scores(oracle, options, site, ids, given):
    attn, place, projections = attention_of(oracle, options, site, seed=1)
    query, key = (torch.randn(x.shape[-1], BATCH, WIDTH, dtype=torch.double) for x in ids)
    sentences = sentences_of(oracle, [len(key)] * BATCH)
    place = dataclasses.replace(place, sentences=sentences)
    expected = reference.scores(
        oracle,
        place,
        projections,
        *(x.transpose(0, 1).numpy() for x in (query, key)),
        *(np.broadcast_to(x, (BATCH, x.shape[-1])) for x in ids),
    )
    side = side_inputs_of(attn.positions.methods, sentences, len(key))
    assert_close(attn.scores(query, key, *given, side_inputs=side), expected, oracle.atol)

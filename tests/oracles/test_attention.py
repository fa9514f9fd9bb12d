"""Whole attention modules and their scores are compared with the oracles, for every method, option and site.

Some methods encode queries and keys as random vectors. test_spe_sine.py tests the oracles of these methods.
"""

import numpy as np
import pytest
import torch

from fairseq_posenc.testing.oracle import BATCH, compare_output, compare_scores, reads_sentences

from .cases import cases


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: not oracle.random))
def test_output_and_weights(oracle, options, site):
    for padding in ("none", "left", "right"):
        compare_output(oracle, options, site, padding)


def positions(oracle, kind: str):
    """Return query ids [T] or [B, T], and key ids [S] or [B, S].

    With kind=shifted, the ids are consecutive and do not begin at 0. Otherwise, the ids are random and may be repeated.
    """
    far = oracle.reach or 300
    if kind == "shifted":
        return np.arange(4) + far - 4, np.arange(6) + far - 8
    generator = np.random.default_rng(0)
    if kind == "scattered":
        return generator.integers(0, far, 4), generator.integers(0, far, 6)
    return generator.integers(0, min(far, 30), (BATCH, 4)), generator.integers(0, min(far, 30), (BATCH, 6))


def reads_whole_sentences(oracle) -> bool:
    """Return whether self-attention must have the same number of queries and keys, and only counted positions are possible."""
    return oracle.row is not None or reads_sentences(oracle)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: not (oracle.random or oracle.head or oracle.output)))
def test_scores(oracle, options, site):
    keys = 4 if reads_whole_sentences(oracle) and site != "cross" else 6
    compare_scores(oracle, options, site, (np.arange(4), np.arange(keys)), ())
    for kind in () if reads_whole_sentences(oracle) else ("shifted", "scattered", "of each sentence"):
        ids = positions(oracle, kind)
        compare_scores(oracle, options, site, ids, map(torch.from_numpy, ids))


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.real))
def test_scores_at_real_positions(oracle, options, site):
    ids = np.array([0, 0.5, 7.25, 31.125]), np.array([0, 0.75, 2.25, 9, 40.5, 300.25])
    compare_scores(oracle, options, site, ids, map(torch.from_numpy, ids))

"""Synthesizer (Tay et al. 2021): logits that depend only on positions or only on the query, without products with keys."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, product


def mixed(synthetic: float, q, k, t, s, at) -> float:
    """Return the synthetic logit, alone or combined with the product of query and key."""
    if at["mix"] == "none":
        return synthetic
    if at["mix"] == "plus":
        return product(q, k, t, s, at) + synthetic
    a = 1 / (1 + math.exp(-at.own("alpha")))
    return (1 - a) * product(q, k, t, s, at) + a * synthetic


def score_random(q, k, t, s, at):
    return mixed(at.own("table")[t, s], q, k, t, s, at)


def score_factorised(q, k, t, s, at):
    return mixed(at.own("query_factor")[t] @ at.own("key_factor")[s], q, k, t, s, at)


def score_minus(q, k, t, s, at):
    """Compute the score of form=minus: the projected query replaces the hidden layer."""
    return mixed(np.maximum(q, 0) @ at.own("table")[:, s], q, k, t, s, at)


def row_dense(q, k, column, seen, at):
    """Compute a logit for every possible key position, with two layers over the input of the query."""
    x, t = at.inputs[0][column], at.query_ids[column]
    hidden = np.maximum(at.own("hidden_weight") @ x + at.own("hidden_bias"), 0)
    synthetic = at.own("out_weight") @ hidden + at.own("out_bias")
    return [mixed(synthetic[at.key_ids[row]], q[column], k[row], t, at.key_ids[row], at) for row in seen]


DENSE = {"form": "paper", "hidden": None, "mix": "none"}
ORACLES = [
    Oracle(
        "synthesizer_random",
        score=score_random,
        defaults={"mix": "none", "share": "none"},
        cases=[
            ({}, "encoder decoder"),
            ({"mix": "plus"}, "encoder decoder"),
            ({"mix": "plus_alpha"}, "encoder decoder"),
            ({"share": "heads"}, "encoder"),
            ({"mix": "plus_alpha", "share": "layers"}, "encoder"),
            ({"mix": "plus", "share": "all"}, "decoder"),
        ],
        reach=12,
    ),
    Oracle(
        "synthesizer_factorised",
        score=score_factorised,
        defaults={"rank": 8, "mix": "none", "share": "none"},
        cases=[
            ({}, "encoder decoder"),
            ({"rank": 3, "mix": "plus"}, "encoder decoder"),
            ({"rank": 1, "mix": "plus_alpha", "share": "heads"}, "encoder decoder"),
            ({"share": "layers"}, "encoder"),
            ({"mix": "plus_alpha", "share": "all"}, "encoder"),
        ],
        reach=12,
    ),
    Oracle(
        "synthesizer_dense",
        row=row_dense,
        defaults=DENSE,
        cases=[
            ({}, "encoder decoder"),
            ({"hidden": 6, "mix": "plus"}, "encoder decoder"),
            ({"hidden": 3, "mix": "plus_alpha"}, "encoder decoder"),
        ],
        reach=12,
    ),
    Oracle(
        "synthesizer_dense",
        score=score_minus,
        defaults=DENSE,
        cases=[
            ({"form": "minus"}, "encoder decoder"),
            ({"form": "minus", "mix": "plus"}, "encoder decoder"),
            ({"form": "minus", "mix": "plus_alpha"}, "encoder decoder"),
        ],
        reach=12,
    ),
]

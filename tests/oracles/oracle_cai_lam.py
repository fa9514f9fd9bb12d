"""A recurrent network over the path between two words, in queries and keys (Cai and Lam 2020)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, split

from .oracle_zhu import path
from .walks import edges, steps, undirected


def labels(t: int, s: int, at) -> list[int]:
    """Return the labels of the path from the word of token t to the word of token s.

    In three cases, one label replaces all labels of the path. Label 0: there is no path. Label 1: both tokens belong to the
    same word. Label 2: the path has more than eight edges.
    """
    i, j = at.sentence.words[t], at.sentence.words[s]
    found = path(i, j, at)
    return [2] if len(found) > 8 else found or [int(i == j)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def states(vectors: list, suffix: str, given: dict) -> list:
    """Return the states of a GRU with the gates r, z and n, from left to right."""
    w_in, w_h, b_in, b_h = (given[f"gru.{name}_{suffix}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h, out = np.zeros(w_h.shape[1]), []
    for x in vectors:
        (ri, zi, ni), (rh, zh, nh) = np.split(w_in @ x + b_in, 3), np.split(w_h @ h + b_h, 3)
        r, z = sigmoid(ri + rh), sigmoid(zi + zh)
        h = (1 - z) * np.tanh(ni + r * nh) + z * h
        out.append(h)
    return out


def relation(t: int, s: int, at) -> np.ndarray:
    given = at.parameters
    vectors = [given["labels"][label] for label in labels(t, s, at)]
    for layer in range(2):
        there = states(vectors, f"l{layer}", given)
        back = states(vectors[::-1], f"l{layer}_reverse", given)[::-1]
        vectors = [np.concatenate(pair) for pair in zip(there, back)]
    last = np.concatenate([there[-1], back[0]])
    return given["relation.weight"] @ last + given["relation.bias"]


def score(q, k, t, s, at):
    of_query, of_key = np.split(at.parameters["relation_of_layer"][at.layer] @ relation(t, s, at), 2)
    return (q + split(of_query, at.head, at.heads)) @ (k + split(of_key, at.head, at.heads)) / math.sqrt(len(q))


def embed(x, ids, at):
    end, known = at.sentence.words[-1], edges(at)
    root = next((before for before, after, _ in known if after == end), end)
    depths = [min(steps(root, word, undirected(known)), 31) for word in at.sentence.words]
    return x + at.parameters["depths"][depths]


ORACLES = [
    Oracle(
        "cai_lam",
        score=score,
        embed=embed,
        defaults={"hidden": None, "graph": "tree"},
        cases=[({}, "encoder"), ({"hidden": 3}, "encoder"), ({"graph": "edges", "hidden": 3}, "encoder")],
    )
]

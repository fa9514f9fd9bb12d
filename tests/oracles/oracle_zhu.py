"""Labels of the path between two words, in keys and values (Zhu et al. 2019)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle, softmax

from .oracle_spr import ancestors
from .walks import edges, shortest


def path(i: int, j: int, at) -> list[int]:
    """Return the labels from word i to word j: 2r for an edge upwards with relation r, 2r + 1 for an edge downwards."""
    heads, relations = at.sentence.heads, at.sentence.relations
    if at["graph"] == "edges":
        return shortest(i, j, edges(at))
    above_i, above_j = ancestors(i, heads), ancestors(j, heads)
    common = next(word for word in above_i if word in above_j)
    up = above_i[: above_i.index(common)]
    down = above_j[: above_j.index(common)][::-1]
    return [2 * int(relations[word]) for word in up] + [2 * int(relations[word]) + 1 for word in down]


def labels(t: int, s: int, at) -> list[int]:
    """Return the labels of the path from token t to token s.

    The path from a token to itself has the label 1. The path between two tokens of one word has two labels. Both labels
    are computed from the relation r of the word: 2r upwards, and 2r + 1 downwards. With graph=edges, r is the smallest relation
    index of the edges that lead to the word, or 3 if no edge leads to the word.
    """
    if t == s:
        return [1]
    i, j = at.sentence.words[t], at.sentence.words[s]
    if i == j:
        entering = [relation for _, after, relation in edges(at) if after == i]
        own = min(entering, default=3) if at["graph"] == "edges" else int(at.sentence.relations[i])
        return [2 * own, 2 * own + 1]
    return path(i, j, at)


def feature(found: list[int], features: int) -> int:
    factor, total = 0x9E3779B97F4A7C15, 0
    for place, label in enumerate(found):
        total = (total + label * pow(factor, place + 1, 2**64)) % 2**64
    return 1 + (total ^ (total >> 32)) % (features - 1)


def waves(place: int, width: int) -> np.ndarray:
    half = width // 2
    angles = [place * 10000 ** (-k / max(half - 1, 1)) for k in range(half)]
    return np.array([*map(math.sin, angles), *map(math.cos, angles), *[0.0] * (width % 2)])


def vector(found: list[int], at) -> np.ndarray:
    given, kind, layer, width = at.parameters, at["paths"], at.layer, at["width"]
    if kind == "feature":
        return given["labels"][feature(found, 20000)] * math.sqrt(width)
    slots = 5 if kind in ("average", "sum") else 4
    vectors = [given["labels"][label] * math.sqrt(width) for label in found[:slots]]
    if kind == "sum":
        return sum(vectors, np.zeros(width))
    if kind == "average":
        return sum(vectors, np.zeros(width)) / max(len(vectors), 1)
    if kind == "convolution":
        padded = np.concatenate([*vectors, *[np.zeros(width)] * (slots - len(vectors))])
        return np.maximum(given["convolution"][layer] @ padded + given["convolution_bias"][layer], 0)
    if not vectors:
        return np.zeros(width)
    placed = [one + waves(place, width) for place, one in enumerate(vectors)]
    q, k, v = ([matrix @ one for one in placed] for matrix in np.split(given["attention"][layer], 3))
    seen = [sum(share * one for share, one in zip(softmax([a @ b / math.sqrt(width) for b in k]), v)) for a in q]
    scores = [(given["pooling"][layer] @ np.tanh(given["hidden"][layer] @ one)).item() for one in seen]
    return sum(share * one for share, one in zip(softmax(scores), seen))


def relation(which: str, t: int, s: int, at) -> np.ndarray:
    r = vector(labels(t, s, at), at)
    r = (r - r.mean()) / math.sqrt(r.var() + 1e-5)
    r = r * at.parameters["norm"][at.layer] + at.parameters["norm_bias"][at.layer]
    return at.parameters[which][at.layer] @ r + at.parameters[f"{which}_bias"][at.layer]


def score(q, k, t, s, at):
    return q @ (k + relation("key", t, s, at)) / math.sqrt(len(q))


def value(v, t, s, at):
    return v + relation("value", t, s, at)


ORACLES = [
    Oracle(
        "zhu",
        score=score,
        value=value,
        defaults={"paths": "convolution", "width": 64, "graph": "tree"},
        cases=[
            ({}, "encoder"),
            ({"width": 5}, "encoder"),
            ({"paths": "attention", "width": 6}, "encoder"),
            ({"paths": "average", "width": 8}, "encoder"),
            ({"paths": "sum", "width": 8}, "encoder"),
            ({"paths": "feature"}, "encoder"),
            ({"graph": "edges", "width": 5}, "encoder"),
            ({"graph": "edges", "paths": "attention", "width": 6}, "encoder"),
            ({"graph": "edges", "paths": "feature"}, "encoder"),
        ],
        atol=1e-6,  # sinusoids are float32
    )
]

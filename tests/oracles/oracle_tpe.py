"""Branches between a word and the root (Shiv and Quirk 2019)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def children(word: int, heads) -> list[int]:
    return [other for other, head in enumerate(heads) if head == word]


def branches(word: int, heads, at) -> list[int]:
    """Return the branches on the path from the word to the root.

    If the option `branches` is given, a branch is the index of a word among its siblings, at most `branches` - 1. Otherwise,
    the tree is binary: branch 0 leads to the first child, and branch 1 leads to the next sibling.
    """
    if heads[word] < 0:
        return []
    siblings = children(heads[word], heads)
    place = siblings.index(word)
    if at["branches"] is not None:
        return [min(place, at["branches"] - 1), *branches(heads[word], heads, at)]
    if place > 0:
        return [1, *branches(siblings[place - 1], heads, at)]
    return [0, *branches(heads[word], heads, at)]


def embed(x, ids, at):
    width = x.shape[1]
    wide = at["branches"] or 2
    depth = min(at["depth"], width // wide)
    factors = np.tanh(at.parameters["factor"])
    out = x.copy()
    for token, word in enumerate(at.sentence.words):
        for level, branch in enumerate(branches(word, at.sentence.heads, at)[:depth]):
            for copy, p in enumerate(factors):
                place = (level * wide + branch) * len(factors) + copy
                out[token, place] += p**level * math.sqrt((1 - p * p) * width / 2)
    return out


ORACLES = [
    Oracle(
        "tpe",
        embed=embed,
        defaults={"depth": 32, "branches": None},
        cases=[
            ({}, "encoder"),
            ({"depth": 2}, "encoder"),
            ({"branches": 8}, "encoder"),
            ({"branches": 2, "depth": 3}, "encoder"),
        ],
    )
]

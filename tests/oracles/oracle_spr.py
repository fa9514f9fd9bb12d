"""Positions in the dependency tree (Wang et al. 2019)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid


def ancestors(word: int, heads) -> list[int]:
    """Return the word, its head, and so on up to the root."""
    found = [word]
    while heads[found[-1]] >= 0:
        found.append(heads[found[-1]])
    return found


def depth(word: int, heads) -> int:
    return len(ancestors(word, heads)) - 1


def relation(i: int, j: int, heads) -> int:
    if i in ancestors(j, heads) or j in ancestors(i, heads):
        return depth(i, heads) - depth(j, heads)
    return (1 if i > j else -1) * (depth(i, heads) + depth(j, heads))


def waves(number: int, width: int, at) -> np.ndarray:
    return sinusoid(number, width, *(("halves", "fairseq") if at["sinusoids"] == "fairseq" else ("interleaved", "paper")))


def embed(x, ids, at):
    out = []
    for token, (vector, t) in enumerate(zip(x, ids)):
        position = waves(t, len(vector), at)
        structure = waves(depth(at.sentence.words[token], at.sentence.heads), len(vector), at)
        if at["fuse"] == "tanh":
            structure = np.tanh(position + structure)
        elif at["fuse"] == "linear_tanh":
            given = at.parameters
            mapped = given["of_position.weight"] @ position + given["of_depth.weight"] @ structure
            structure = np.tanh(mapped + given["of_position.bias"])
        out.append(vector + structure)
    return np.array(out)


def row(table: str, t: int, s: int, at):
    k, words = at["max_distance"], at.sentence.words
    return at.own(table)[max(-k, min(k, relation(words[t], words[s], at.sentence.heads))) + k]


def score(q, k, t, s, at):
    return q @ (k + row("key_table", t, s, at) if at["keys"] else k) / math.sqrt(len(q))


def value(v, t, s, at):
    return v + row("value_table", t, s, at) if at["values"] else v


ORACLES = [
    Oracle(
        "spr_abs",
        embed=embed,
        defaults={"fuse": "sum", "sinusoids": "fairseq"},
        cases=[
            ({}, "encoder"),
            ({"sinusoids": "paper"}, "encoder"),
            ({"fuse": "tanh"}, "encoder"),
            ({"fuse": "linear_tanh", "sinusoids": "paper"}, "encoder"),
        ],
        atol=1e-6,  # tables are float32
    ),
    Oracle(
        "spr_rel",
        score=score,
        value=value,
        defaults={"max_distance": 16, "keys": True, "values": True, "share": "heads"},
        cases=[
            ({}, "encoder"),
            ({"max_distance": 2, "share": "none"}, "encoder"),
            ({"max_distance": 1, "share": "layers"}, "encoder"),
            ({"keys": False}, "encoder"),
            ({"values": False, "share": "all"}, "encoder"),
        ],
    ),
]

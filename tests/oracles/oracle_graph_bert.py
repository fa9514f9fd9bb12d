"""Role, closeness and distance of words in their tree or graph (Zhang et al. 2020)."""

import math
import zlib

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid
from .walks import edges, steps, undirected


def neighbours(word: int, joined: list) -> set[int]:
    return {after for before, after, _ in joined if before == word}


def colour(word: int, joined: list, rounds: int) -> int:
    if rounds == 1:
        return len(neighbours(word, joined))
    own = colour(word, joined, rounds - 1)
    around = sorted(colour(other, joined, rounds - 1) for other in neighbours(word, joined))
    return zlib.crc32(repr((own, around)).encode()) % 100


def walk(size: int, joined: list, normalise: str) -> np.ndarray:
    """Return 0.15 sum_k 0.85^k A'^k. This result equals 0.15 times the inverse of (I - 0.85 A').

    A' is the normalised adjacency matrix.
    """
    degree = [max(len(neighbours(word, joined)), 1) for word in range(size)]
    matrix = np.zeros((size, size))
    for i in range(size):
        for j in neighbours(i, joined):
            matrix[i, j] = 1 / degree[j] if normalise == "columns" else 1 / math.sqrt(degree[i] * degree[j])
    term, total = np.eye(size), np.zeros((size, size))
    for _ in range(300):
        total, term = total + 0.15 * term, 0.85 * term @ matrix
    return total


def numbers(size: int, at) -> list[tuple[int, int, int]]:
    """Return (colour, rank, hops) of every word except </s>. </s> is the last word.

    The colour describes the role of a word. With rounds=1, the colour is the number of neighbours of the word. With more
    rounds, the colour also depends on the colours of the neighbours.

    The rank of the root is 0. The other words are ranked by their closeness to the root. Hops are the number of edges from the
    root, at most 99.
    """
    joined = undirected([edge for edge in edges(at) if edge[1] != size])
    root = next(before for before, after, _ in edges(at) if after == size)
    close = walk(size, joined, at["normalise"])[root].round(9)
    others = sorted((word for word in range(size) if word != root), key=lambda word: (-close[word], word))
    ranks = [root, *others]
    return [(colour(w, joined, at["rounds"]), ranks.index(w), int(min(steps(root, w, joined), 99))) for w in range(size)]


def embed(x, ids, at):
    size = int(at.sentence.words[-1])
    known, out = numbers(size, at) if size else [], x.copy()
    for token, word in enumerate(at.sentence.words):
        for table, number in enumerate(known[word] if word < len(known) else []):
            if at["embedding"] == "learned":
                out[token] += at.parameters["weight"][table, min(number, 99)]
            else:
                out[token] += sinusoid(number, x.shape[1], "halves", "fairseq")
    return out


ORACLES = [
    Oracle(
        "graph_bert",
        embed=embed,
        defaults={"embedding": "sinusoids", "normalise": "columns", "rounds": 1, "graph": "tree"},
        cases=[
            ({}, "encoder"),
            ({"rounds": 2, "normalise": "both"}, "encoder"),
            ({"embedding": "learned"}, "encoder"),
            ({"graph": "edges"}, "encoder"),
            ({"graph": "edges", "rounds": 2, "normalise": "both"}, "encoder"),
        ],
        atol=1e-6,  # tables are float32
    )
]

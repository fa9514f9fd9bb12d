"""Role, closeness and distance of words in their tree (Zhang et al. 2020)."""

import math
import zlib

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid
from .oracle_spr import depth


def neighbours(word: int, heads) -> list[int]:
    return [other for other in range(len(heads)) if heads[other] == word or heads[word] == other]


def colour(word: int, heads, rounds: int) -> int:
    if rounds == 1:
        return len(neighbours(word, heads))
    own = colour(word, heads, rounds - 1)
    around = sorted(colour(other, heads, rounds - 1) for other in neighbours(word, heads))
    return zlib.crc32(repr((own, around)).encode()) % 100


def walk(heads, normalise: str) -> np.ndarray:
    """0.15 sum_k 0.85^k A'^k, the inverse as the series that it stands for."""
    size = len(heads)
    degree = [max(len(neighbours(word, heads)), 1) for word in range(size)]
    matrix = np.zeros((size, size))
    for i in range(size):
        for j in neighbours(i, heads):
            matrix[i, j] = 1 / degree[j] if normalise == "columns" else 1 / math.sqrt(degree[i] * degree[j])
    term, total = np.eye(size), np.zeros((size, size))
    for _ in range(300):
        total, term = total + 0.15 * term, 0.85 * term @ matrix
    return total


def numbers(heads, at) -> list[tuple[int, int, int]]:
    """Colour, rank and hops of every word of a tree without </s>."""
    root = list(heads).index(-1)
    close = walk(heads, at["normalise"])[root].round(9)
    others = sorted((word for word in range(len(heads)) if word != root), key=lambda word: (-close[word], word))
    ranks = [root, *others]
    return [(colour(word, heads, at["rounds"]), ranks.index(word), depth(word, heads)) for word in range(len(heads))]


def embed(x, ids, at):
    heads = at.sentence.heads[:-1]
    known, out = numbers(heads, at) if len(heads) else [], x.copy()
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
        defaults={"embedding": "sinusoids", "normalise": "columns", "rounds": 1},
        cases=[({}, "encoder"), ({"rounds": 2, "normalise": "both"}, "encoder"), ({"embedding": "learned"}, "encoder")],
        atol=1e-6,  # tables are float32
    )
]

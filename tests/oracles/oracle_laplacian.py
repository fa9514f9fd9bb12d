"""Eigenvectors of the Laplacian of the tree or graph (Dwivedi and Bresson 2021)."""

import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .walks import edges, undirected


def coordinates(words: int, known: list, count: int) -> np.ndarray:
    """Return the entries of every word in the eigenvectors after the first. The last word, </s>, has zeros."""
    out = np.zeros((words + 1, count))
    if words < 2:
        return out
    joined = [[float((i, j) in known) for j in range(words)] for i in range(words)]
    # If an eigenvalue is repeated, a rounding error in the matrix changes the eigenvectors of this eigenvalue. The products are
    # therefore computed in a fixed order, from left to right.
    root = [1 / math.sqrt(max(sum(row), 1.0)) for row in joined]
    laplacian = np.array([[float(i == j) - root[i] * joined[i][j] * root[j] for j in range(words)] for i in range(words)])
    _, vectors = np.linalg.eigh(laplacian)
    kept = vectors[:, 1 : count + 1]
    out[:words, : kept.shape[1]] = kept
    return out


def embed(x, ids, at):
    joined = [(before, after) for before, after, _ in undirected(edges(at))]
    known = coordinates(int(at.sentence.words[-1]), joined, at["eigenvectors"])
    weight, bias = at.parameters["projection.weight"], at.parameters["projection.bias"]
    return np.array([vector + weight @ known[at.sentence.words[token]] + bias for token, vector in enumerate(x)])


ORACLES = [
    Oracle(
        "laplacian",
        embed=embed,
        defaults={"eigenvectors": 8, "graph": "tree"},
        cases=[({}, "encoder"), ({"eigenvectors": 2}, "encoder"), ({"graph": "edges"}, "encoder")],
        atol=1e-6,  # coordinates are float32
    )
]

"""Graphs of words as numpy arrays: edges, distances, labels of shortest paths (no torch).

Words count from 0. An edge is (from, to, relation); those of a tree lead from heads to dependents.
"""

from __future__ import annotations

import numpy as np

from ..core import UNKNOWN_RELATION, Sentence
from . import trees
from .trees import NOTHING

#: stands for the distance of words that no way joins, and for what comes after all paths of its length
FAR, _LAST = 10000, np.iinfo(np.int64).max


def joined_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return whether an edge of the sentence leads from the row's word to the column's, </s> among them: bool [n, n].

    `graph` is "tree", where they lead from heads to dependents, or "edges".
    """
    return leads(sentence.edges if graph == "edges" else tree_edges(sentence.heads), len(sentence))


def paths_by(graph: str, sentence: Sentence, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """`path_labels` of the tree of a sentence, or of its edges."""
    if graph == "edges":
        return path_labels(sentence.edges, len(sentence), slots)
    return trees.path_labels(sentence.heads, sentence.relations, slots)


def relations_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return the relation of every word to its head, or the first by number of the edges that enter it: [n]."""
    if graph == "tree":
        return sentence.relations
    found = np.full(len(sentence), _LAST)
    np.minimum.at(found, sentence.edges[:, 1], sentence.edges[:, 2])
    return np.where(found < _LAST, found, UNKNOWN_RELATION)


def tree_edges(heads: np.ndarray) -> np.ndarray:
    """Return the edges of the tree that `heads` [n] describe, the root's being -1: [n - 1, 2]."""
    below = np.flatnonzero(heads >= 0)
    return np.stack([heads[below], below], 1)


def leads(edges: np.ndarray, count: int) -> np.ndarray:
    """Return whether an edge leads from the row's word to the column's: bool [count, count]."""
    found = np.zeros((count, count), bool)
    found[edges[:, 0], edges[:, 1]] = True
    return found


def distances(joined: np.ndarray) -> np.ndarray:
    """Return the number of edges of the shortest way from the row's word to the column's, FAR where there is none: [n, n]."""
    found = np.where(joined, 1, FAR)
    np.fill_diagonal(found, 0)
    for word in range(len(found)):  # Floyd and Warshall: ways over words up to this one
        np.minimum(found, found[:, word, None] + found[word], out=found)
    return found


def path_labels(edges: np.ndarray, count: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """As `trees.path_labels`, of shortest ways that follow edges in both directions: NOTHING and FAR where there is none.

    Of several shortest ways it is the one whose labels are the smallest, so that the order of words is of no matter.
    """
    start, end, relation = edges.T
    label = np.append(2 * relation + 1, 2 * relation)
    start, end = np.append(start, end), np.append(end, start)
    labels = np.full((count, count, slots), NOTHING, np.int64)
    lengths = np.where(np.eye(count, dtype=bool), 0, FAR)
    rank = np.zeros((count, count), np.int64)  # among the paths of its length
    for length in range(1, count):
        onwards = (lengths[end] == length - 1) & (lengths[start] == FAR)  # an edge and a path behind it: [edges, count]
        paths = np.where(onwards, label[:, None] * count**2 + rank[end], _LAST)
        best = np.full((count, count), _LAST)
        np.minimum.at(best, start, paths)
        edge, goal = np.nonzero(onwards & (paths == best[start]))
        if not len(edge):
            break
        labels[start[edge], goal, 0] = label[edge]
        labels[start[edge], goal, 1:] = labels[end[edge], goal, :-1]
        new = best < _LAST
        lengths[new], rank[new] = length, np.unique(best[new], return_inverse=True)[1]
    return labels, lengths

"""Compute edges, distances and labels of shortest paths in graphs of words, as numpy arrays.

Words count from 0. An edge is (from, to, relation). The edges of a tree lead from heads to dependents.
"""

from __future__ import annotations

import numpy as np

from ..core import UNKNOWN_RELATION, Sentence
from . import trees
from .trees import NOTHING

#: distance of words without a path; it is larger than all path lengths
FAR, _LAST = 10000, np.iinfo(np.int64).max


def joined_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return whether an edge of the sentence leads from the word of the row to the word of the column: bool [n, n].

    Words include </s>. `graph` is "tree", with edges from heads to dependents, or "edges".
    """
    return leads(sentence.edges if graph == "edges" else tree_edges(sentence.heads), len(sentence))


def paths_by(graph: str, sentence: Sentence, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `path_labels` for the tree of a sentence, or for its edges."""
    if graph == "edges":
        return path_labels(sentence.edges, len(sentence), slots)
    return trees.path_labels(sentence.heads, sentence.relations, slots)


def relations_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return the relation of every word to its head, [n]. In a graph, return the smallest relation of its incoming edges."""
    if graph == "tree":
        return sentence.relations
    found = np.full(len(sentence), _LAST)
    np.minimum.at(found, sentence.edges[:, 1], sentence.edges[:, 2])
    return np.where(found < _LAST, found, UNKNOWN_RELATION)


def tree_edges(heads: np.ndarray) -> np.ndarray:
    """Return the edges of the tree that `heads` [n] describe: [n - 1, 2]. The head of the root is -1."""
    below = np.flatnonzero(heads >= 0)
    return np.stack([heads[below], below], 1)


def leads(edges: np.ndarray, count: int) -> np.ndarray:
    """Return whether an edge leads from the word of the row to the word of the column: bool [count, count]."""
    found = np.zeros((count, count), bool)
    found[edges[:, 0], edges[:, 1]] = True
    return found


def distances(joined: np.ndarray) -> np.ndarray:
    """Return the number of edges of the shortest path from row word to column word, or FAR if there is no path: [n, n]."""
    found = np.where(joined, 1, FAR)
    np.fill_diagonal(found, 0)
    for word in range(len(found)):  # Floyd-Warshall: paths over words up to this word
        np.minimum(found, found[:, word, None] + found[word], out=found)
    return found


def path_labels(edges: np.ndarray, count: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as `trees.path_labels`, for shortest paths that follow edges in both directions.

    The label of a missing path is NOTHING, and its length is FAR. Of several shortest paths, the path with the smallest labels is
    used, so that the result does not depend on the order of words.
    """
    start, end, relation = edges.T
    label = np.append(2 * relation + 1, 2 * relation)
    start, end = np.append(start, end), np.append(end, start)
    labels = np.full((count, count, slots), NOTHING, np.int64)
    lengths = np.where(np.eye(count, dtype=bool), 0, FAR)
    rank = np.zeros((count, count), np.int64)  # rank among the paths of equal length
    for length in range(1, count):
        onwards = (lengths[end] == length - 1) & (lengths[start] == FAR)  # an edge, followed by a shorter path: [edges, count]
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

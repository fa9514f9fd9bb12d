"""Compute numpy arrays for graphs of words: edges, distances, and the labels of shortest paths.

Word indices begin with 0. An edge is (from, to, index of the relation label). The edges of a tree lead from heads to dependents.
"""

from __future__ import annotations

import numpy as np

from ..core import UNKNOWN_RELATION, Sentence
from . import trees
from .trees import NOTHING

#: FAR: the distance between words without a path, larger than every path length. _LAST: the largest 64-bit integer
FAR, _LAST = 10000, np.iinfo(np.int64).max


def joined_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return whether an edge leads from word i to word j: bool [n, n]. The last word is </s>.

    `graph` is "tree" or "edges". With "tree", the edges of the tree are used. With "edges", the edges of the graph are used.
    """
    return leads(sentence.edges if graph == "edges" else tree_edges(sentence.heads), len(sentence))


def paths_by(graph: str, sentence: Sentence, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the path labels and the path lengths of a sentence.

    With graph="edges", the paths are shortest paths in the graph. With graph="tree", the paths are paths in the tree.
    """
    if graph == "edges":
        return path_labels(sentence.edges, len(sentence), slots)
    return trees.path_labels(sentence.heads, sentence.relations, slots)


def relations_by(graph: str, sentence: Sentence) -> np.ndarray:
    """Return the index of the relation label between every word and its head, [n].

    In a graph, return the smallest label index of all edges that lead to the word. Return UNKNOWN_RELATION for a word to which
    no edge leads.
    """
    if graph == "tree":
        return sentence.relations
    found = np.full(len(sentence), _LAST)
    np.minimum.at(found, sentence.edges[:, 1], sentence.edges[:, 2])
    return np.where(found < _LAST, found, UNKNOWN_RELATION)


def tree_edges(heads: np.ndarray) -> np.ndarray:
    """Return the edges of a tree as pairs (head, dependent): [n] -> [n - 1, 2].

    `heads` contains the index of the head of every word, and -1 for the root.
    """
    below = np.flatnonzero(heads >= 0)
    return np.stack([heads[below], below], 1)


def leads(edges: np.ndarray, count: int) -> np.ndarray:
    """Return whether an edge leads from word i to word j: bool [count, count]."""
    found = np.zeros((count, count), bool)
    found[edges[:, 0], edges[:, 1]] = True
    return found


def distances(joined: np.ndarray) -> np.ndarray:
    """Return the number of edges of the shortest path from word i to word j, or FAR if no path exists: [n, n]."""
    found = np.where(joined, 1, FAR)
    np.fill_diagonal(found, 0)
    for word in range(len(found)):  # Floyd-Warshall: also allow paths through this word
        np.minimum(found, found[:, word, None] + found[word], out=found)
    return found


def path_labels(edges: np.ndarray, count: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `slots` labels of a shortest path between every two words, [n, n, slots], and the lengths [n, n].

    Paths may follow edges in both directions. The labels are numbered as in `trees.path_labels`.
    If no path connects two words, all labels are NOTHING, and the length is FAR. If there are several shortest paths, the
    function uses the path whose list of labels is the first in lexicographic order. The result therefore does not depend on
    word order.
    """
    start, end, relation = edges.T
    label = np.append(2 * relation + 1, 2 * relation)
    start, end = np.append(start, end), np.append(end, start)
    labels = np.full((count, count, slots), NOTHING, np.int64)
    lengths = np.where(np.eye(count, dtype=bool), 0, FAR)
    rank = np.zeros((count, count), np.int64)  # rank among the paths of equal length
    for length in range(1, count):
        # [edges, count]: True if the edge is the first edge of a shortest path of this length to the word
        onwards = (lengths[end] == length - 1) & (lengths[start] == FAR)
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

"""Compute paths, depths, ancestors and distances in dependency trees, as numpy arrays.

Word indices begin with 0, and the head of the root is -1. `by_token` converts arrays over words to arrays over tokens.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Tree:
    """A dependency tree. `heads` [n] contains the word index of the head of every word, and -1 for the root."""

    heads: np.ndarray

    @functools.cached_property
    def up(self) -> np.ndarray:
        """Return the path from every word up to the root: [n, maximum depth + 1]. Entries after the root are -1.

        A path includes the word and the root.
        """
        heads, ways = self.heads.tolist(), []
        for word in range(len(heads)):  # for sentences, this loop is faster than numpy
            way = [word]
            while (word := heads[word]) >= 0:
                way.append(word)
                if len(way) > len(heads):
                    raise ValueError(f"the heads {heads} contain a cycle")
            ways.append(way)
        longest = max(map(len, ways), default=1)
        return np.array([way + [-1] * (longest - len(way)) for way in ways], int).reshape(-1, longest)

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """Return the depth of every word, [n]. The root has depth 0."""
        return (self.up >= 0).sum(1) - 1

    @functools.cached_property
    def paths(self) -> np.ndarray:
        """Return the path from the root down to every word, including both: [n, maximum depth + 1]. Further entries are -1."""
        column = self.depths[:, None] - np.arange(self.up.shape[1])
        return np.where(column >= 0, np.take_along_axis(self.up, column.clip(0), 1), -1)

    @functools.cached_property
    def ancestors(self) -> np.ndarray:
        """Return whether word i is an ancestor of word j, or is word j: bool [n, n]."""
        count = len(self.heads)
        # `up` contains -1 after the root. The index -1 selects the additional last row, which is then removed
        found = np.zeros((count + 1, count), bool)
        found[self.up, np.arange(count)[:, None]] = True
        return found[:-1]

    @functools.cached_property
    def common(self) -> np.ndarray:
        """Return the depth of the lowest common ancestor of every two words: [n, n]."""
        ancestors = self.ancestors.astype(np.float32)  # integer matrix products are slow
        return (ancestors.T @ ancestors).astype(np.int64) - 1  # number of common ancestors - 1

    @property
    def distances(self) -> np.ndarray:
        """Return the number of edges between every two words: [n, n]."""
        return self.depths[:, None] + self.depths - 2 * self.common

    @property
    def siblings(self) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays [n]: the index of each word among the dependents of its head, and its nearest sibling on the left.

        The second array contains -1 for words without such a sibling.
        """
        number, before, last = [], [], {}
        for word, head in enumerate(self.heads.tolist()):
            before.append(last.get(head, -1))
            number.append(number[before[-1]] + 1 if before[-1] >= 0 else 0)
            last[head] = word
        return np.array(number), np.array(before)

    def path_words(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first `slots` edges of the path from every word i to every word j, and the number of edges that lead up.

        Each edge is represented by its dependent: [n, n, slots], with -1 after the end. The first edges lead up, and their number
        is in the second array [n, n]. The other edges lead down.
        """
        rising = self.depths[:, None] - self.common  # [n, n]
        step = np.arange(slots)
        up = np.take_along_axis(self.up, step[None].repeat(len(self.heads), 0).clip(max=self.up.shape[1] - 1), 1)  # [n, slots]
        # column of each downward edge in `paths`, in the row of word j
        column = self.common[..., None] + 1 + step - rising[..., None]
        rows = np.arange(len(self.heads))[None, :, None]
        down = self.paths[rows, column.clip(0, self.paths.shape[1] - 1)]
        words = np.where(step < rising[..., None], up[:, None], down)
        return np.where(step < self.distances[..., None], words, -1), rising


def by_token(values: np.ndarray, words: np.ndarray, axes: int = 1) -> np.ndarray:
    """Give each token the values of its word: [n, ...] -> [S, ...], or with axes=2 [n, n, ...] -> [S, S, ...]."""
    return values[words] if axes == 1 else values[words[:, None], words]


#: labels for the end of a path, the word itself, and a path that is too long. An edge with relation r has label 2r upwards, and
#: 2r + 1 downwards
NOTHING, ITSELF, TOO_LONG = 0, 1, 2


def path_labels(heads: np.ndarray, relations: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `slots` labels of the path from every word to every word, [n, n, slots], and the path lengths [n, n].

    Indices of relations begin with 2, as in `Sentence.relations`.
    """
    tree = Tree(heads)
    words, rising = tree.path_words(slots)
    labels = 2 * relations[words] + (np.arange(slots) >= rising[..., None])
    return np.where(words >= 0, labels, NOTHING), tree.distances

"""Trees of words as numpy arrays: root paths, depths, lowest common ancestors, distances, labels of paths (no torch).

Words count from 0 and the root's head is -1. What belongs to words is given to their tokens by `by_token`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree that `heads` [n] describe: the head of every word, -1 for the root."""

    heads: np.ndarray

    @functools.cached_property
    def up(self) -> np.ndarray:
        """Return the way from every word up to the root, itself first: [n, depth + 1], -1 past the root."""
        heads, ways = self.heads.tolist(), []
        for word in range(len(heads)):  # numpy takes longer for trees of sentences
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
        """[n], 0 at the root."""
        return (self.up >= 0).sum(1) - 1

    @functools.cached_property
    def paths(self) -> np.ndarray:
        """Return the way from the root down to every word, itself last: [n, depth + 1], -1 past the word."""
        column = self.depths[:, None] - np.arange(self.up.shape[1])
        return np.where(column >= 0, np.take_along_axis(self.up, column.clip(0), 1), -1)

    @functools.cached_property
    def ancestors(self) -> np.ndarray:
        """bool [n, n], whether the row's word is an ancestor of the column's, or the word itself."""
        count = len(self.heads)
        found = np.zeros((count + 1, count), bool)  # what is past the root goes into the last row
        found[self.up, np.arange(count)[:, None]] = True
        return found[:-1]

    @functools.cached_property
    def common(self) -> np.ndarray:
        """Return the depth of the lowest common ancestor of every two words: [n, n]."""
        ancestors = self.ancestors.astype(np.float32)  # products of whole numbers are slow
        return (ancestors.T @ ancestors).astype(np.int64) - 1  # the ancestors of both

    @property
    def distances(self) -> np.ndarray:
        """Return the number of edges between every two words: [n, n]."""
        return self.depths[:, None] + self.depths - 2 * self.common

    @property
    def siblings(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every word its number among the dependents of its head, from left to right, and the sibling before it, or -1."""
        number, before, last = [], [], {}
        for word, head in enumerate(self.heads.tolist()):
            before.append(last.get(head, -1))
            number.append(number[before[-1]] + 1 if before[-1] >= 0 else 0)
            last[head] = word
        return np.array(number), np.array(before)

    def path_words(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first edges of the way from every word i to every word j, each named by the word below it.

        -> [n, n, slots] words, -1 past the end, and the number of edges that lead up, [n, n]; the others lead down.
        """
        rising = self.depths[:, None] - self.common  # [n, n]
        step = np.arange(slots)
        up = np.take_along_axis(self.up, step[None].repeat(len(self.heads), 0).clip(max=self.up.shape[1] - 1), 1)  # [n, slots]
        column = self.common[..., None] + 1 + step - rising[..., None]  # where the way down is in the root path of j
        rows = np.arange(len(self.heads))[None, :, None]
        down = self.paths[rows, column.clip(0, self.paths.shape[1] - 1)]
        words = np.where(step < rising[..., None], up[:, None], down)
        return np.where(step < self.distances[..., None], words, -1), rising


def by_token(values: np.ndarray, words: np.ndarray, axes: int = 1) -> np.ndarray:
    """[n, ...] or [n, n, ...] of words -> [S, ...] or [S, S, ...] of tokens, each of which has what its word has."""
    return values[words] if axes == 1 else values[words[:, None], words]


#: labels of paths that name no relation: nothing more, a word itself, a path too long; then 2r up an edge r and 2r + 1 down it
NOTHING, ITSELF, TOO_LONG = 0, 1, 2


def path_labels(heads: np.ndarray, relations: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first labels of the path from every word to every word, [n, n, slots], and the number of all, [n, n].

    Relations count from 2, as those of files do.
    """
    tree = Tree(heads)
    words, rising = tree.path_words(slots)
    labels = 2 * relations[words] + (np.arange(slots) >= rising[..., None])
    return np.where(words >= 0, labels, NOTHING), tree.distances

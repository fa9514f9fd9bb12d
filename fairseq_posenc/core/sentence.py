"""Syntax and reordering of a source sentence, from its side files (no torch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: numbers of relations, in the numbering of fairseq's dictionaries: relation of `</s>` to the root, unknown relation, and first
#: relation of the training data (0 and 1 are unused)
END_RELATION, UNKNOWN_RELATION, FIRST_RELATION = 2, 3, 4


@dataclass(frozen=True)
class Sentence:
    """One source sentence of n words and S tokens, with the content of its side files. Words are counted from 0.

    `</s>` is the last word, n-1. In trees and graphs it is a child of the root. Fields without a side file are None.
    """

    words: np.ndarray  # [S], the word of every token
    heads: np.ndarray | None = None  # [n], the head of every word, -1 for the root
    relations: np.ndarray | None = None  # [n], the number of the relation between every word and its head
    edges: np.ndarray | None = None  # [m, 3]: from, to, and the number of the relation
    order: np.ndarray | None = None  # [n], the original word index at each place of the reordered sentence

    def __len__(self) -> int:
        """Return n, the number of words."""
        return int(self.words[-1]) + 1

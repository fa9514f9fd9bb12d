"""What is known of a source sentence beside its tokens (no torch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: numbers of relations, as fairseq's dictionaries number symbols: that of `</s>` to the root, one that the training data does
#: not have, and the first of those that it has (0 and 1 stand for nothing)
END_RELATION, UNKNOWN_RELATION, FIRST_RELATION = 2, 3, 4


@dataclass(frozen=True)
class Sentence:
    """One source sentence of n words and S tokens, as its side files describe it; words count from 0.

    `</s>` is the last word, n-1, and in trees and graphs it hangs off the root. What no file gives is None.
    """

    words: np.ndarray  # [S], the word of every token
    heads: np.ndarray | None = None  # [n], the head of every word, -1 for the root
    relations: np.ndarray | None = None  # [n], the number of every word's relation to its head
    edges: np.ndarray | None = None  # [m, 3], from, to and the number of the relation
    order: np.ndarray | None = None  # [n], the word that stands at every place of the reordered sentence

    def __len__(self) -> int:
        """n"""
        return int(self.words[-1]) + 1

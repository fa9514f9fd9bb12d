"""Syntax and reordering of a source sentence, from its side files. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: indices of relation labels: the label between `</s>` and the root, the unknown label, and the first label of the training data.
#: 0 and 1 are not labels, because fairseq's dictionaries reserve 0 for `<s>` and 1 for `<pad>`
END_RELATION, UNKNOWN_RELATION, FIRST_RELATION = 2, 3, 4


@dataclass(frozen=True)
class Sentence:
    """One source sentence of n words and S tokens, with the content of its side files. Word indices begin with 0.

    `</s>` is the last word, n-1. In trees and graphs, it is a child of the root. A field is None if its side file is missing. A
    word has no token if SentencePiece deletes all its characters.
    """

    words: np.ndarray  # [S], the word index of every token
    heads: np.ndarray | None = None  # [n], the index of the head of every word, -1 for the root
    relations: np.ndarray | None = None  # [n], the index of the relation label between every word and its head
    edges: np.ndarray | None = None  # [m, 3]: index of the first word, index of the second word, index of the relation label
    order: np.ndarray | None = None  # [n], the original word index at each position of the reordered sentence

    def __len__(self) -> int:
        """Return n, the number of words."""
        return int(self.words[-1]) + 1

"""Sizes of the attention that uses a method. This module does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import PositionError


@dataclass(frozen=True)
class Dims:
    """Describe the sizes and the type of the attention that uses a method, for all layers of one stack.

    causal: each query attends only to the keys up to its own position.
    cross: queries and keys belong to different sequences. `key_embed_dim` is the width of the keys' hidden states (0: the width
    of the queries).
    words: the dictionary of the queries' language, token -> index.
    source_words: the dictionary of the source language. A method of the decoder may also read this dictionary.
    relations: the number of entries of dict.relations.txt, which lists the relation labels of trees and graphs. The number
    includes fairseq's four special symbols. `core/sentence.py` defines the indices of the relation labels.
    """

    embed_dim: int
    num_heads: int
    num_layers: int = 1
    max_positions: int = 1024
    max_key_positions: int = 1024
    padding_idx: int = 1
    vocab_size: int = 0
    words: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)  # empty without a dictionary
    source_words: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    relations: int = 0  # labels have indices below this number. 0 without dict.relations.txt
    causal: bool = False
    cross: bool = False
    key_embed_dim: int = 0

    @property
    def head_dim(self) -> int:
        """Return the width of a head, d_h."""
        return self.embed_dim // self.num_heads

    @property
    def key_width(self) -> int:
        """Return the width of the hidden states of keys."""
        return self.key_embed_dim or self.embed_dim

    def require_equal_widths(self, name: str) -> None:
        """Raise PositionError for the method `name` if queries and keys have different widths."""
        if self.key_width != self.embed_dim:
            raise PositionError(
                f"{name}: queries have width {self.embed_dim} and keys have width {self.key_width}. Expected equal widths. "
                "Use the same --encoder-embed-dim and --decoder-embed-dim."
            )

    @property
    def max_distance(self) -> int:
        """Return the maximum distance between two positions."""
        return max(self.max_positions, self.max_key_positions) - 1

    def at(self, site: str) -> Dims:
        """Return a copy of these sizes with the values of `causal` and `cross` for a site.

        Only the decoder is causal.
        """
        return dataclasses.replace(self, causal=site == "decoder", cross=site == "cross")

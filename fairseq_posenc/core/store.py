"""Values that the hooks of one forward pass share."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from .method import PositionMethod


@dataclass(frozen=True, eq=False)
class ForwardStore:
    """Values that the hooks of one forward pass share. Hooks access the store through `AttentionContext`.

    The two sites of a decoder share losses, logged means, and random numbers that are drawn once per sentence pair. All other
    values belong to one site.
    """

    prepared: Mapping[PositionMethod, Any] = dataclasses.field(default_factory=dict)
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B] each
    means: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, 2] each: sums and counts
    pair_draws: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, ...] each
    made: dict[Hashable, Any] = dataclasses.field(default_factory=dict)  # results of `once`
    handed: dict[Hashable, Any] = dataclasses.field(default_factory=dict)  # values of `hand_over`

    def of_site(self) -> ForwardStore:
        """Return a new store for another site, which contains only the shared values."""
        return ForwardStore(losses=self.losses, means=self.means, pair_draws=self.pair_draws)

    def of_block(self) -> ForwardStore:
        """Return a new store for a block of queries.

        Losses and tensors of the block are stored separately, because the backward pass computes the block again.
        """
        return dataclasses.replace(self, losses={}, made={}, handed={})

"""Values that the hooks of one forward pass share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .method import PositionMethod

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ForwardStore:
    """Values that the hooks of one forward pass share. Hooks read and write it through `AttentionContext`.

    The sites of one decoder share losses, means and random numbers of sentence pairs. Everything else belongs to one site.
    """

    prepared: Mapping[PositionMethod, Any] = dataclasses.field(default_factory=dict)
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B] each
    means: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, 2] each: sums and counts
    pair_draws: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, ...] each
    _made: dict[Hashable, Any] = dataclasses.field(default_factory=dict)
    _handed: dict[Hashable, Tensor] = dataclasses.field(default_factory=dict)

    def of_site(self) -> ForwardStore:
        """Return the store of another site. It contains no results of `prepare`."""
        return dataclasses.replace(self, prepared={}, _made={}, _handed={})

    def of_block(self) -> ForwardStore:
        """Return the store of a block of queries.

        The block keeps its own tensors and losses, because its activations are recomputed.
        """
        return dataclasses.replace(self, losses={}, _made={}, _handed={})

    def with_prepared(self, prepared: Mapping[PositionMethod, Any]) -> ForwardStore:
        """Return the store with these results of `prepare`."""
        return dataclasses.replace(self, prepared={**self.prepared, **prepared})

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add [B] to the loss of this name."""
        self.losses[name] = value if name not in self.losses else self.losses[name] + value

    def add_mean(self, name: str, total: Tensor, count: Tensor) -> None:
        """Store the sums [B] and the counts [B] of a mean that is logged."""
        self.means[name] = torch.stack([total.detach(), count.to(total.dtype)], 1)  # [B, 2]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return make(), computed once per key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def hand_over(self, key: Hashable, tensor: Tensor) -> None:
        """Keep a tensor for one later call of `take`."""
        self._handed[key] = tensor

    def take(self, key: Hashable) -> Tensor | None:
        """Return the tensor of `hand_over` and remove it. Return None if there is no tensor."""
        return self._handed.pop(key, None)

    def once_per_pair(self, name: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return draw(), [B, ...], or the value that the other side of the sentence pairs has already stored under this name."""
        if name not in self.pair_draws:
            self.pair_draws[name] = draw()
        return self.pair_draws[name]

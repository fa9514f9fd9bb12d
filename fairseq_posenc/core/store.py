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
    """Values that the hooks of one forward pass share. Hooks access the store through `AttentionContext`.

    The two sites of a decoder share losses, logged means, and random numbers that are drawn once per sentence pair. All other
    values belong to one site.
    """

    prepared: Mapping[PositionMethod, Any] = dataclasses.field(default_factory=dict)
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B] each
    means: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, 2] each: sums and counts
    pair_draws: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, ...] each
    _made: dict[Hashable, Any] = dataclasses.field(default_factory=dict)
    _handed: dict[Hashable, Any] = dataclasses.field(default_factory=dict)

    def of_site(self) -> ForwardStore:
        """Return a new store for another site, which contains only the shared values."""
        return ForwardStore(losses=self.losses, means=self.means, pair_draws=self.pair_draws)

    def of_block(self) -> ForwardStore:
        """Return a new store for a block of queries.

        Losses and tensors of the block are stored separately, because the backward pass computes the block again.
        """
        return dataclasses.replace(self, losses={}, _made={}, _handed={})

    def with_prepared(self, prepared: Mapping[PositionMethod, Any]) -> ForwardStore:
        """Return a copy of the store with these results of `prepare`."""
        return dataclasses.replace(self, prepared={**self.prepared, **prepared})

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a tensor [B] to the loss with this name."""
        self.losses[name] = value if name not in self.losses else self.losses[name] + value

    def add_mean(self, name: str, total: Tensor, count: Tensor) -> None:
        """Store the sums [B] and the counts [B] from which a mean is logged."""
        self.means[name] = torch.stack([total.detach(), count.to(total.dtype)], 1)  # [B, 2]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return make(), computed once per key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def parts(self, parameter: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Convert a parameter to `dtype`, and return its parts along the first axis: [L, ...] -> L tensors [...].

        All layers use the result of one conversion and one `unbind` call, so that the backward pass combines the gradients of
        all layers once. With one call per layer, the backward pass would compute a gradient of the whole parameter for every
        layer. Results under torch.no_grad are stored separately. Activation checkpointing can compute a layer first without
        gradients, and then with gradients.
        """
        return self.once((parameter, dtype, torch.is_grad_enabled()), lambda: parameter.to(dtype).unbind(0))

    def hand_over(self, key: Hashable, value: Any) -> None:
        """Keep a value for one later call of `take`."""
        self._handed[key] = value

    def take(self, key: Hashable) -> Any:
        """Return and remove the value that `hand_over` has stored, or return None."""
        return self._handed.pop(key, None)

    def once_per_pair(self, name: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return the value that the encoder or the decoder has already stored under this name.

        If no value is stored, store and return the result of draw(), [B, ...].
        """
        if name not in self.pair_draws:
            self.pair_draws[name] = draw()
        return self.pair_draws[name]

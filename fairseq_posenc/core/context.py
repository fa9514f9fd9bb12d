"""Where a hook is: positions, tokens, state, side inputs, and the cache of one forward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from .side import SideInputs
from .state import State

if TYPE_CHECKING:
    from .method import PositionMethod

T = TypeVar("T")


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Positions:
    """Position ids of one side of an attention: [B or 1, T], integers or floats, pad-free and from 0.

    `start` is set where every row counts start, start + 1, ...: only then can a Toeplitz matrix be made from one vector.
    """

    ids: Tensor
    start: int | None = None

    @classmethod
    def counted(cls, start: int, length: int, device: torch.device | None = None) -> Positions:
        return cls(torch.arange(start, start + length, device=device).unsqueeze(0), start)

    def part(self, first: int, end: int) -> Positions:
        """The positions of some columns."""
        return Positions(self.ids[:, first:end], None if self.start is None else self.start + first)

    @property
    def last(self) -> int:
        """The largest id, without waiting for the device where the ids are counted."""
        return self.start + self.ids.size(1) - 1 if self.start is not None else int(self.ids.max())


@dataclass(frozen=True)
class AttentionContext:
    """All that a hook may know about where it is: position ids, never lengths or columns.

    `causal` says that a mask will hide the keys after each query: what scores are made for these means nothing. `cross` says that
    keys belong to another sequence than queries. `scale` is the factor of the product of queries and keys of this layer.
    `dropout` is the probability of dropping a weight in this call, 0 in evaluation; a kernel of a method's own must apply it.
    `inputs` are the queries' and keys' hidden states [B, T, C], [B, S, C] inside an attention and None before it.
    `state` is set while decoding step by step; keys then run over all steps so far and queries over the new ones.
    """

    queries: Positions
    keys: Positions
    layer: int = 0
    causal: bool = False
    cross: bool = False
    scale: float = 1.0
    dropout: float = 0.0
    key_padding: Tensor | None = None  # bool [B, S], True at padding
    inputs: tuple[Tensor, Tensor] | None = None
    tokens: Tensor | None = None  # [B, S], those of the keys, where the host has tokens
    project: Callable[[str, Tensor], Tensor] | None = None  # ("query" or "key", [..., T, C]) -> [..., H, T, D], as this attention
    state: State | None = None
    side: SideInputs = dataclasses.field(default_factory=SideInputs)
    prepared: Mapping[Any, Any] = dataclasses.field(default_factory=dict)  # method -> what its `prepare` made for this forward
    cache: dict = dataclasses.field(default_factory=dict)  # of one forward
    pair_draws: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # [B, ...], what both sides of a sentence pair share
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # of one forward; see add_loss
    means: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # of one forward; see add_mean

    def replace(self, **changes: Any) -> AttentionContext:
        return dataclasses.replace(self, **changes)

    def prepared_by(self, method: PositionMethod) -> AttentionContext:
        """The context with what a method prepares for this forward pass."""
        return self.replace(prepared={**self.prepared, method: method.prepare(self)}) if "prepare" in method.hooks else self

    def part(self, first: int, end: int, keys: int) -> AttentionContext:
        """The context of some queries inside an attention, and of the first keys; nothing of it is seen by the rest."""
        return self.replace(
            queries=self.queries.part(first, end),
            keys=self.keys.part(0, keys),
            key_padding=None if self.key_padding is None else self.key_padding[:, :keys],
            inputs=None if self.inputs is None else (self.inputs[0][:, first:end], self.inputs[1][:, :keys]),
            tokens=None if self.tokens is None else self.tokens[:, :keys],
            cache={},
            losses={},
        )

    def add_loss(self, name: str, value: Tensor) -> None:
        """Adds [B], a number for every sentence in the unit of its summed cross-entropy, to what the training minimises."""
        self.losses[name] = value if name not in self.losses else self.losses[name] + value

    def add_mean(self, name: str, total: Tensor, count: Tensor) -> None:
        """Logs a mean over all that this batch has of something: its sums in every sentence [B], and how many are summed [B]."""
        self.means[name] = torch.stack([total.detach(), count.to(total.dtype)], 1)  # [B, 2]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once a forward for all layers that ask with the same key; it must hold no gradient."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

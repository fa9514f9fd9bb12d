"""Arguments of hooks: positions, tokens, state, side inputs, and values that the hooks of one forward pass share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from .side import SideInputs
from .state import State
from .store import ForwardStore

if TYPE_CHECKING:
    from .method import PositionMethod

T = TypeVar("T")


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Positions:
    """Position ids of the queries or keys of an attention: [B or 1, T], integers or floats.

    Positions begin with 0 and do not count padding.

    `start` is set if every sentence has the positions start, start + 1, ... Such positions are called counted. Their matrix of
    distances is a Toeplitz matrix, which can be built from one vector.
    """

    ids: Tensor
    start: int | None = None

    @classmethod
    def counted(cls, start: int, length: int, device: torch.device | None = None) -> Positions:
        """Return the positions start to start + length - 1: [1, length]."""
        return cls(torch.arange(start, start + length, device=device).unsqueeze(0), start)

    def part(self, first: int, end: int) -> Positions:
        """Return the positions of the columns `first` to `end` - 1."""
        return Positions(self.ids[:, first:end], None if self.start is None else self.start + first)

    @property
    def last(self) -> int:
        """Return the largest position id. If `start` is set, the property needs no synchronisation with the device."""
        return self.start + self.ids.size(1) - 1 if self.start is not None else int(self.ids.max())


@dataclass(frozen=True)
class AttentionContext:
    """Arguments of a hook. Hooks must use position ids, not sequence lengths or column numbers.
    For the order of tokens, they call `order` in ops/running.py.

    causal: the attention masks the keys after each query. The scores of masked keys have no effect.
    cross: queries and keys belong to different sequences.
    scale: factor of the product of queries and keys in this layer.
    dropout: dropout probability of attention weights. It is 0 in evaluation, except with --retain-dropout. A method that
    overrides `attend` must apply this dropout.
    inputs: hidden states of queries [B, T, C] and keys [B, S, C] inside an attention. Before the attention, `inputs` is None.
    state: set while decoding step by step. `keys` then contains all positions up to now, and `queries` only the new positions.
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
    tokens: Tensor | None = None  # [B, S], the tokens of the keys. None if the model does not provide tokens
    #: [B, T'], the tokens up to the last query, if they differ from `tokens`: in cross-attention, and in a block of queries
    query_tokens: Tensor | None = None
    source: Tensor | None = None  # [B, S'], the tokens of the source sentences. None if the model does not provide tokens
    #: bool [B or 1, H or 1, T or 1, S], the keys to which each query may attend. Only the hooks `rescale` and `content_values`
    #: may read this field. None: all keys
    allowed: Tensor | None = None
    project: Callable[[str, Tensor], Tensor] | None = None  # ("query" or "key", [..., T, C]) -> [..., H, T, D]
    state: State | None = None
    block_start: int | None = None  # in a block of queries: number of queries before the block
    side: SideInputs = dataclasses.field(default_factory=SideInputs)
    # the factory is a lambda, because torch.compile cannot trace a class as a default factory
    store: ForwardStore = dataclasses.field(default_factory=lambda: ForwardStore())

    def replace(self, **changes: Any) -> AttentionContext:
        """Return a copy of the context with new values for the given fields.

        Raise TypeError if a name is not a field. dataclasses.replace returns the same copy and takes seven times as long. Every
        attention calls this function up to five times.
        """
        if not changes.keys() <= self.__dict__.keys():
            raise TypeError(f"AttentionContext has no field {min(changes.keys() - self.__dict__.keys())!r}")
        copied = object.__new__(AttentionContext)
        copied.__dict__.update(self.__dict__, **changes)
        return copied

    @property
    def prefix(self) -> Tensor | None:
        """Return the tokens up to the last query, [B, T'], or None if the model does not provide tokens.

        The queries are the last tokens of this prefix.

        In beam search, the rows of this tensor differ from the rows of the queries in cross-attention. This tensor has one row
        per hypothesis of the beam. The tensor of queries has one row per source sentence. Each row of queries contains the
        queries of all hypotheses of the sentence.
        """
        return self.tokens if self.query_tokens is None and not self.cross else self.query_tokens

    @property
    def first_query(self) -> int | None:
        """Return the column of the key that belongs to the first query, or None if the queries are not consecutive keys."""
        queries, keys = self.queries.ids.size(1), self.keys.ids.size(1)
        if self.cross or self.block_start is not None:
            return None if self.cross else self.block_start
        if self.state is not None or queries == keys:
            return keys - queries
        if self.queries.start is None or self.keys.start is None:
            return None
        return self.queries.start - self.keys.start

    @property
    def prepared(self) -> Mapping[PositionMethod, Any]:
        """Return a mapping from each method to the result of its hook `prepare`."""
        return self.store.prepared

    def prepared_by(self, method: PositionMethod) -> AttentionContext:
        """Call the hook `prepare` of this method, and return the context with its result."""
        return self.with_prepared({method: method.prepare(self)} if "prepare" in method.hooks else {})

    def with_prepared(self, prepared: Mapping[PositionMethod, Any]) -> AttentionContext:
        """Return the context with these results of `prepare`."""
        return self.replace(store=dataclasses.replace(self.store, prepared={**self.store.prepared, **prepared}))

    def part(self, first: int, end: int, keys: int) -> AttentionContext:
        """Return the context of a block: queries `first` to `end` - 1, and the first `keys` keys.

        Losses of the block, results of `once` and tensors of `hand_over` are not visible outside the block.
        """
        return self.replace(
            queries=self.queries.part(first, end),
            keys=self.keys.part(0, keys),
            block_start=first,
            key_padding=None if self.key_padding is None else self.key_padding[:, :keys],
            inputs=None if self.inputs is None else (self.inputs[0][:, first:end], self.inputs[1][:, :keys]),
            tokens=None if self.tokens is None else self.tokens[:, :keys],
            query_tokens=None if self.prefix is None else self.prefix[:, :end],
            store=self.store.of_block(),
        )

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a tensor [B] to the training loss, with one number per sentence.

        The criterion adds each number to the cross-entropy of the sentence. This cross-entropy is a sum over the tokens. Raise
        ValueError for a tensor with another number of axes.
        """
        if value.dim() != 1:
            raise ValueError(f"loss {name!r} has the shape {list(value.shape)}. Expected [B]: one number per sentence.")
        losses = self.store.losses
        losses[name] = value if name not in losses else losses[name] + value

    def add_mean(self, name: str, total: Tensor, count: Tensor) -> None:
        """Log a mean over the batch. `total` [B] is the sum of each sentence, and `count` [B] is its number of summands."""
        self.store.means[name] = torch.stack([total.detach(), count.to(total.dtype)], 1)  # [B, 2]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return make(), computed once per forward pass and shared across layers. The result must not require gradients."""
        made = self.store.made
        if key not in made:
            made[key] = make()
        return made[key]

    def hand_over(self, key: Hashable, value: Any) -> None:
        """Keep a value for a later hook call of the same attention. Tensors in the value may require gradients."""
        self.store.handed[key] = value

    def take(self, key: Hashable) -> Any:
        """Return the value that an earlier hook call of this attention has stored, or None. The value is then removed."""
        return self.store.handed.pop(key, None)

    def once_per_pair(self, name: str, draw: Callable[[], Tensor]) -> Tensor:
        """Return draw(), [B, ...], with one entry per sentence pair.

        The function calls `draw` only once for encoder and decoder. The decoder receives the encoder's value.
        """
        drawn = self.store.pair_draws
        if name not in drawn:
            drawn[name] = draw()
        return drawn[name]

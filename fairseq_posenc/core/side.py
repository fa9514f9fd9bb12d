"""Side inputs: additional input tensors of a method, declared on its card (the declaration does not need torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .errors import PositionError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SideInput:
    """Declaration of one input tensor that belongs to the source or the target sentence.

    axes: "B" (one value per sentence), "B S" (one per token) or "B S S" (one per pair of tokens). Axes of fixed size may follow.
    files: kinds of side files from which the side input is computed. If a method has the
    option graph=edges, the method reads only the side files of the kind `edges`.

    The model changes a side input in the same way as the tokens: it moves padding from the left to the right, and selects the
    rows of the current beams.
    """

    name: str
    axes: Literal["B", "B S", "B S S"]
    of: Literal["source", "target"] = "source"
    padding: float = 0  # value at padding
    files: tuple[str, ...] = ()

    @property
    def words(self) -> int:
        """Return how many axes of the side input are axes over tokens: 0, 1 or 2."""
        return self.axes.count("S")

    def collate(self, rows: Sequence[Tensor], length: int, left_pad: bool = False) -> Tensor:
        """Combine one tensor per sentence, without axis B, into one tensor of the batch.

        Padding is at the same positions as in the tokens.
        """
        first = rows[0]
        shape = (len(rows), *[length] * self.words, *first.shape[self.words :])
        batch = first.new_full(shape, self.padding)
        for target, row in zip(batch, rows):
            words = row.size(0) if self.words else 0
            start = length - words if left_pad else 0
            target[(slice(start, start + words),) * self.words] = row
        return batch


class SideInputs(Mapping):
    """Side inputs of a batch by name, [B, ...] each. Padding is at the same positions as in the tokens."""

    def __init__(self, tensors: Mapping[str, Tensor] | None = None, declared: Mapping[str, SideInput] | None = None):
        self._declared = declared or {}
        self._tensors = {name: tensor for name, tensor in (tensors or {}).items() if name in self._declared}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def require(self, inputs: Sequence[SideInput], who: str) -> None:
        """Raise PositionError if one of these side inputs is missing."""
        for wanted in inputs:
            if wanted.name not in self:
                raise PositionError(
                    f"{who}: the side input {wanted.name!r} is missing from the batch, which contains "
                    f"{', '.join(map(repr, self)) or 'no side input'}. Expected {wanted.name!r} [{wanted.axes}] of the "
                    f"{wanted.of}. Pass it to the model as side_inputs."
                )

    def rolled(self, shift: Tensor) -> SideInputs:
        """Return a copy in which side inputs of the source are moved to the left by `shift` [B, 1] columns.

        Each row of `shift` belongs to one sentence. Padding on the left is then on the right.
        """
        return self._each(lambda side, x: _roll(x, side.words, shift) if side.of == "source" else x)

    def up_to(self, length: int) -> SideInputs:
        """Return a copy in which side inputs of the target are truncated to a prefix: [B, T, ...] -> [B, length, ...]."""
        return self._each(lambda side, x: x[(slice(None),) + (slice(length),) * side.words] if side.of == "target" else x)

    def every(self, beam: int) -> SideInputs:
        """Return a copy with one row per sentence: every `beam`-th row of the batch.

        In cross-attention, each row contains the queries of all beams of a sentence.
        """
        return self if beam == 1 else self._each(lambda side, x: x[::beam])

    def _each(self, change) -> SideInputs:
        return SideInputs({name: change(self._declared[name], x) for name, x in self.items()}, self._declared)


def declared_by(cards: Sequence) -> dict[str, SideInput]:
    """Return the side inputs of these cards by name. Raise PositionError if two cards declare one name differently."""
    found: dict[str, SideInput] = {}
    for card in cards:
        for wanted in card.side_inputs:
            if found.setdefault(wanted.name, wanted) != wanted:
                raise PositionError(
                    f"{card.name}: reads the side input {wanted.name!r} as [{wanted.axes}] of the {wanted.of}, but another "
                    f"method reads it as [{found[wanted.name].axes}] of the {found[wanted.name].of}. "
                    "Remove one of the two methods."
                )
    return found


def _roll(x: Tensor, axes: int, shift: Tensor) -> Tensor:
    """Rotate each sentence of [B, S, ...] or [B, S, S, ...] to the left by its own shift.

    `shift` [B, 1] contains one shift per sentence. The function rotates the first `axes` axes after B by the same shift.
    """
    for axis in range(1, 1 + axes):
        columns = shift.new_ones(x.size(axis)).cumsum(0) - 1  # 0, 1, ...
        index = (columns + shift) % x.size(axis)  # [B, S]
        index = index.view(-1, *[1] * (axis - 1), x.size(axis), *[1] * (x.dim() - axis - 1))
        x = x.gather(axis, index.expand_as(x))
    return x

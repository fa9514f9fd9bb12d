"""The table of hooks: when each hook is called, and how the results of several methods are combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
#: projections of an attention
Projection = Literal["query", "key", "value"]


class Phase(IntEnum):
    """The step of a forward pass at which a hook is called, in the order of the forward pass."""

    START = 0  # once per forward pass, before the embeddings
    INPUT = 1  # once per forward pass, on the embeddings
    LAYER = 2  # before every layer
    ATTENTION_INPUT = 3  # before the projections of an attention
    PROJECTED = 4  # on projected queries and keys
    SCORES = 5  # on the scores
    VALUES = 6  # on the heads' outputs
    KERNEL = 7  # replaces scale, scores, masks, softmax and values


class Kind(Enum):
    """How the results of several methods with the same hook are combined."""

    CHAIN = "each method changes the result of the method before it"
    SUM = "the results are added"
    INTERSECTION = "a query attends to a key if all masks allow it"
    EACH = "each method has its own result"
    AGREEMENT = "numbers must be equal, tensors are multiplied"
    EXCLUSIVE = "only one method is allowed"


@dataclass(frozen=True)
class Hook:
    """One hook: phase, kind, and the projections that it changes or reads. A method restricts the projections with `acts_on`."""

    phase: Phase
    kind: Kind
    projections: frozenset[str] = frozenset()


def acts_on(*projections: Projection, mixes_positions: bool = False) -> Callable[[F], F]:
    """Mark a hook `project_input` or `rotate` that changes only these projections. It is not called for other projections.

    `mixes_positions`: set to True if a key that the hook returns can depend on several positions, or if the hook changes the
    number of keys.
    """

    def decorate(hook: F) -> F:
        hook.projections, hook.mixes_positions = frozenset(projections), mixes_positions  # type: ignore[attr-defined]
        return hook

    return decorate


def recurrent(attend: F) -> F:
    """Mark a hook `attend` that keeps sums in ctx.state.

    Decoding passes only the new keys and values, and caches no keys or values.
    """
    attend.recurrent = True  # type: ignore[attr-defined]
    return attend


#: the hooks in the order of a forward pass. A bias or mask that depends only on positions may be computed earlier
HOOKS: dict[str, Hook] = {
    "positions": Hook(Phase.START, Kind.CHAIN),
    "prepare": Hook(Phase.START, Kind.EACH),
    "embed": Hook(Phase.INPUT, Kind.CHAIN),
    "before_layer": Hook(Phase.LAYER, Kind.CHAIN),
    "project_input": Hook(Phase.ATTENTION_INPUT, Kind.CHAIN, frozenset({"query", "key", "value"})),
    "rotate": Hook(Phase.PROJECTED, Kind.EXCLUSIVE, frozenset({"query", "key"})),
    "scale": Hook(Phase.SCORES, Kind.AGREEMENT),
    "rescale": Hook(Phase.SCORES, Kind.CHAIN, frozenset({"query", "key"})),
    "content_scores": Hook(Phase.SCORES, Kind.SUM, frozenset({"query", "key"})),
    "bias": Hook(Phase.SCORES, Kind.SUM),
    "mask": Hook(Phase.SCORES, Kind.INTERSECTION),
    "content_values": Hook(Phase.VALUES, Kind.SUM, frozenset({"value"})),
    "attend": Hook(Phase.KERNEL, Kind.EXCLUSIVE),
}


def hooks_where(holds: Callable[[Hook], bool]) -> frozenset[str]:
    """Return the names of the hooks for which the function `holds` returns True."""
    return frozenset(name for name, hook in HOOKS.items() if holds(hook))


#: hooks that are called before the layers, so that the option `layers` has no effect
BEFORE_LAYERS = hooks_where(lambda hook: hook.phase <= Phase.INPUT)
#: hooks on hidden states outside the attention, which only a complete model can call
OUTSIDE_ATTENTION = hooks_where(lambda hook: hook.phase in (Phase.INPUT, Phase.LAYER))
#: hooks that act on projected vectors or later; all other hooks act before the projections
IN_MATRIX = hooks_where(lambda hook: hook.phase >= Phase.PROJECTED)
#: hooks that have no effect if a method overrides `attend`
REPLACED_BY_KERNEL = hooks_where(lambda hook: hook.phase in (Phase.SCORES, Phase.VALUES))
#: hooks that need a tensor of scores or attention weights, which a fused kernel does not store
NEEDS_SCORES = tuple(
    sorted(hooks_where(lambda hook: hook.phase == Phase.VALUES or (hook.phase == Phase.SCORES and hook.kind == Kind.CHAIN)))
)

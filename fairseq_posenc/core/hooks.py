"""The hooks of a method: when each acts, and how those of several methods combine. All sets of hooks follow from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
#: what a projection of an attention makes
Projection = Literal["query", "key", "value"]


class Phase(IntEnum):
    """When a hook acts, in the order of a forward."""

    START = 0  # once a forward, before there are vectors
    INPUT = 1  # once, where tokens become vectors
    LAYER = 2  # before every layer
    ATTENTION_INPUT = 3  # before the projections of an attention
    PROJECTED = 4  # on projected queries and keys
    SCORES = 5  # on the scores
    VALUES = 6  # on the heads' outputs
    KERNEL = 7  # in place of scale, scores, masks, softmax and values


class Kind(Enum):
    """How the hooks of several methods come together."""

    CHAIN = "each changes what the one before gives"
    SUM = "what they give is added"
    INTERSECTION = "a query sees a key where all let it"
    EACH = "each has its own"
    AGREEMENT = "numbers must be equal, tensors are multiplied"
    EXCLUSIVE = "one method alone"


@dataclass(frozen=True)
class Hook:
    """One hook: its phase, its kind, and the projections that it changes or reads; `acts_on` narrows them for a method."""

    phase: Phase
    kind: Kind
    projections: frozenset[str] = frozenset()


def acts_on(*projections: Projection, mixes_positions: bool = False) -> Callable[[F], F]:
    """Decorate a `project_input` or `rotate` that changes only some projections: it is not called for the others.

    `mixes_positions`: the hook gives other keys than one for every position.
    """

    def decorate(hook: F) -> F:
        hook.projections, hook.mixes_positions = frozenset(projections), mixes_positions  # type: ignore[attr-defined]
        return hook

    return decorate


def recurrent(attend: F) -> F:
    """Decorate an `attend` that carries sums in ctx.state: while decoding it gets new keys and values only, none are cached."""
    attend.recurrent = True  # type: ignore[attr-defined]
    return attend


def _hook(phase: Phase, kind: Kind, *projections: str) -> Hook:
    return Hook(phase, kind, frozenset(projections))


#: in the order of a forward; a bias and a mask of positions alone may be made ahead of it
HOOKS: dict[str, Hook] = {
    "positions": _hook(Phase.START, Kind.CHAIN),
    "prepare": _hook(Phase.START, Kind.EACH),
    "embed": _hook(Phase.INPUT, Kind.CHAIN),
    "before_layer": _hook(Phase.LAYER, Kind.CHAIN),
    "project_input": _hook(Phase.ATTENTION_INPUT, Kind.CHAIN, "query", "key", "value"),
    "rotate": _hook(Phase.PROJECTED, Kind.EXCLUSIVE, "query", "key"),
    "scale": _hook(Phase.SCORES, Kind.AGREEMENT),
    "rescale": _hook(Phase.SCORES, Kind.CHAIN, "query", "key"),
    "content_scores": _hook(Phase.SCORES, Kind.SUM, "query", "key"),
    "bias": _hook(Phase.SCORES, Kind.SUM),
    "mask": _hook(Phase.SCORES, Kind.INTERSECTION),
    "content_values": _hook(Phase.VALUES, Kind.SUM, "value"),
    "attend": _hook(Phase.KERNEL, Kind.EXCLUSIVE),
}


def hooks_where(holds: Callable[[Hook], bool]) -> frozenset[str]:
    """The names of the hooks of which this holds."""
    return frozenset(name for name, hook in HOOKS.items() if holds(hook))


#: hooks that act before the layers, where a choice of layers means nothing
BEFORE_LAYERS = hooks_where(lambda hook: hook.phase <= Phase.INPUT)
#: hooks on hidden states outside of attention, which only a host with layers can call
OUTSIDE_ATTENTION = hooks_where(lambda hook: hook.phase in (Phase.INPUT, Phase.LAYER))
#: hooks that act in the attention matrix; the others change vectors before it
IN_MATRIX = hooks_where(lambda hook: hook.phase >= Phase.PROJECTED)
#: hooks that a kernel of a method's own leaves without effect
REPLACED_BY_KERNEL = hooks_where(lambda hook: hook.phase in (Phase.SCORES, Phase.VALUES))
#: hooks that need the scores or the weights as tensors, which a fused kernel never makes
NEEDS_SCORES = tuple(
    sorted(hooks_where(lambda hook: hook.phase == Phase.VALUES or (hook.phase == Phase.SCORES and hook.kind == Kind.CHAIN)))
)

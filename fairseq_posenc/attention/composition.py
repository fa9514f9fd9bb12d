"""Check that the methods of one layer can be combined, according to the table of hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import PositionError, PositionMethod
from ..core.hooks import HOOKS, REPLACED_BY_KERNEL, Kind, hooks_where

#: hook -> the methods of one layer that use it, in the order of the spec
Users = Mapping[str, Sequence[PositionMethod]]

_APART = "Use different layers (layers=...), or remove one of the two."
_EXCLUSIVE = hooks_where(lambda hook: hook.kind == Kind.EXCLUSIVE) - {"attend"}


def refuse_contradictions(users: Users, projections: frozenset[str], scales: Mapping[PositionMethod, float]) -> None:
    """Raise PositionError if the methods of one layer cannot be combined.

    `scales` maps each method to the result of its hook `scale`. Results that are tensors are not included.
    """
    _refuse_beside_kernel(users)
    _refuse_missing_projections(users, projections)
    _refuse_two_scales(scales)
    _refuse_factors_of_no_product(users, scales)
    _refuse_order_dependence(users)
    _refuse_terms_beside_weights(users)
    _refuse_mixed_keys(users)
    _refuse_two_rotations(users)
    _refuse_content_beside_rotation(users)


def _refuse_beside_kernel(users: Users) -> None:
    kernels = users.get("attend", ())
    if not kernels:
        return
    others = {m.card.name for hook in REPLACED_BY_KERNEL | {"attend"} for m in users.get(hook, ()) if m is not kernels[0]}
    if others:
        own, listed = kernels[0].card.name, ", ".join(sorted(others))
        raise PositionError(
            f"{own}+{'+'.join(sorted(others))}: {own} replaces the attention kernel, so {listed} would have no effect. "
            f"Expected {own} alone or with methods that act on the embeddings. Remove {listed}."
        )


def _refuse_missing_projections(users: Users, projections: frozenset[str]) -> None:
    for side in PositionMethod.projections - projections:
        reading = [method for hook in HOOKS for method in users.get(hook, ()) if side in method.projections_of(hook)]
        unread = [method for method in reading if side in method.projections]
        if unread:
            without = next(method for found in users.values() for method in found if side not in method.projections)
            reader, other = unread[0].card.name, without.card.name
            raise PositionError(
                f"{reader}+{other}: {reader} requires the {side} projection, but {other} removes this projection. {_APART}"
            )


def _refuse_two_scales(scales: Mapping[PositionMethod, float]) -> None:
    if len(set(scales.values())) > 1:
        listed = ", ".join(f"{method.card.name} by {value:.4g}" for method, value in scales.items())
        raise PositionError(
            f"{'+'.join(method.card.name for method in scales)}: the methods scale the product of queries and keys differently "
            f"({listed}). Use one of them."
        )


def _refuse_factors_of_no_product(users: Users, scales: Mapping[PositionMethod, float]) -> None:
    """Raise PositionError if one method multiplies queries by factors, and another method has the constant scale 0."""
    without = [method.card.name for method, value in scales.items() if value == 0]
    factors = [method.card.name for method in users.get("scale", ()) if method not in scales]
    if without and factors:
        raise PositionError(
            f"{without[0]}+{factors[0]}: {without[0]} does not compute the product of queries and keys, so {factors[0]} would "
            f"have no effect. Expected only one of them. {_APART}"
        )


def _refuse_order_dependence(users: Users) -> None:
    """Raise PositionError if the result depends on the order of the methods.

    Factors that depend only on positions can be applied in any order. Other changes of the scores cannot.
    """
    rescaling = sorted(users.get("rescale", ()), key=lambda method: method.rescale_reads == "positions")
    if len(rescaling) > 1 and rescaling[0].rescale_reads != "positions":
        first, second = (method.card.name for method in rescaling[:2])
        raise PositionError(
            f"{first}+{second}: the result depends on the order of the two methods, because {first} does not only multiply "
            f"the scores. {_APART}"
        )


def _refuse_terms_beside_weights(users: Users) -> None:
    """Raise PositionError if one method returns attention weights and another method adds terms to the scores."""
    added = [method.card.name for hook in ("bias", "content_scores") for method in users.get(hook, ())]
    for method in users.get("rescale", ()):
        if method.rescale_reads == "weights" and added:
            raise PositionError(
                f"{method.card.name}+{added[0]}: {method.card.name} computes attention weights, so {added[0]} cannot add a term "
                f"to the scores. {_APART}"
            )


def _refuse_mixed_keys(users: Users) -> None:
    changing = [
        method
        for hook in ("project_input", "rotate")
        for method in users.get(hook, ())
        if method.projections_of(hook) & {"key", "value"}
    ]
    for mixing in (method for method in changing if method.mixes_keys):
        for other in (method for method in changing if method is not mixing):
            raise PositionError(
                f"{mixing.card.name}+{other.card.name}: {mixing.card.name} mixes the keys of all positions, but "
                f"{other.card.name} requires one key per position. {_APART}"
            )


def _refuse_two_rotations(users: Users) -> None:
    for hook in sorted(_EXCLUSIVE):
        names = [method.card.name for method in users.get(hook, ())]
        if len(names) > 1:
            raise PositionError(f"{names[0]}+{names[1]}: both methods rotate queries and keys. Expected only one. {_APART}")


def _refuse_content_beside_rotation(users: Users) -> None:
    rotating = users.get("rotate", ())
    content = [method for method in users.get("rescale", ()) if method.rescale_reads in ("content", "vectors")]
    reading = [method for method in [*users.get("content_scores", ()), *content] if method not in rotating]
    if rotating and reading:
        first, second = rotating[0].card.name, reading[0].card.name
        raise PositionError(
            f"{first}+{second}: {first} rotates the queries that {second} reads, so the relative term of "
            f"{second} would depend on absolute positions. {_APART}"
        )

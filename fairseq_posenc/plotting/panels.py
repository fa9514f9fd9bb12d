"""Compute the panels of a figure: for specs, for trained models, and for the atlas.

A panel is the picture of one matrix. The atlas is one figure with a panel of every method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .. import registry
from ..core import SITES, PositionError
from .matrices import CHANGE, COSINE, SCORE, WEIGHT, Matrix, matrices
from .scales import Scale, is_constant, scale_of
from .sources import first_site, fresh, is_run, load, of_model

#: seed of random parameters in the atlas
_ATLAS_SEED = 1

_MEANING = {
    COSINE: "cosine: cosine similarity of the vectors of two positions",
    SCORE: "score: attention score of query and key, 1 where the positions have no effect",
    CHANGE: "change of score: term that the positions add to the attention score of query and key",
    WEIGHT: "weight: attention weight of the key, for methods without softmax over scores",
}


@dataclass(frozen=True)
class Panel:
    """One picture: numbers [T, S], and a description. A number is nan if the query cannot attend to the key."""

    title: str
    values: Tensor
    quantity: str
    site: str
    heads: str  # the heads of the panel. Empty if all heads are equal
    origin: str  # origin of learned parameters and noise
    scale: Scale
    family: str = ""


def of_sources(
    sources: Iterable[str],
    length: int,
    *,
    site: str | None = None,
    layer: int = 0,
    head: int | None = None,
    every_head: bool = False,
    seed: int | None = None,
    data: str | None = None,
) -> list[Panel]:
    """Return the panels of specs and training runs, in the order of `sources`.

    A panel contains the mean over heads. With `head`, the panel contains this head. With `every_head`, there is one panel per
    head. Raise PositionError if no panel depends on `layer`.
    """
    found, given, of_layer = [], list(sources), layer == 0
    for source in given:
        listed = _of_run(source, length, site, layer, data) if is_run(source) else _of_spec(source, length, site, layer, seed)
        for title, at, matrix, origin in listed:
            of_layer |= matrix.of_layer
            found += _heads(title, at, matrix, origin, head, every_head)
    if not of_layer:
        raise PositionError(
            f"--layer {layer}: {', '.join(given)} changes only the input of the first layer. "
            "Expected a method that changes this layer. Leave --layer out."
        )
    return found


def atlas(length: int) -> list[Panel]:
    """Return one panel per method, sorted by family and name.

    A panel shows the numbers of the first head, at the first site for which the authors define the method.
    """
    found = []
    for name in registry.names():
        *_, drawn = _of_spec(name, length, None, 0, _ATLAS_SEED)
        (panel,) = _heads(*drawn, 0, False)
        found.append(dataclasses.replace(panel, family=registry.declaration(name).family))
    return sorted(found, key=lambda panel: panel.family)


def meanings(panels: Iterable[Panel]) -> list[str]:
    """Return the definitions of the quantities of these panels. Each definition occurs once."""
    drawn = {panel.quantity for panel in panels}
    return [text for quantity, text in _MEANING.items() if quantity in drawn]


def _of_spec(spec: str, length: int, site: str | None, layer: int, seed: int | None) -> Iterable[tuple[str, str, Matrix, str]]:
    at = site or first_site(spec)
    positions = fresh(spec, at, length, layer)
    learned = any(True for _ in positions.parameters())
    for number, matrix in enumerate(matrices(positions, length, layer)):
        origin = "initial" if learned else ""
        if learned and is_constant(matrix.values) and seed is not None:
            drawn = matrices(fresh(spec, at, length, layer, seed), length, layer)[number]
            if not is_constant(drawn.values):
                matrix, origin = drawn, f"drawn with seed {seed}"
        if origin == "initial" and matrix.quantity == CHANGE and is_constant(matrix.values):
            origin = "initial: no change yet"
        yield spec, at, matrix, origin


def _of_run(path: str, length: int, site: str | None, layer: int, data: str | None) -> Iterable[tuple[str, str, Matrix, str]]:
    sites = SITES if site is None else (site,)
    for at, spec, positions, content in of_model(load(Path(path), data), sites, layer):
        for matrix in matrices(positions, length, layer, content):
            yield spec, at, matrix, Path(path).resolve().name


def _heads(title: str, site: str, matrix: Matrix, origin: str, head: int | None, every_head: bool) -> list[Panel]:
    values, number = matrix.values, len(matrix.values)
    if head is not None and head >= number > 1:
        raise PositionError(f"--head {head}: {title} has no such head. Expected a number from 0 to {number - 1}.")
    if number == 1:
        chosen = {"": values[0]}
    elif every_head:
        chosen = {f"head {head}": own for head, own in enumerate(values)}
    else:
        chosen = {f"mean of {number} heads": values.nanmean(0)} if head is None else {f"head {head}": values[head]}
    scale = scale_of(torch.stack(list(chosen.values())))  # heads of one spec are compared, so they use one scale
    notes = ", ".join(filter(None, [origin, f"mean of {matrix.draws} draws" * (matrix.draws > 1)]))
    return [Panel(title, own, matrix.quantity, site, name, notes, scale) for name, own in chosen.items()]


def row_of(panel: Panel, query: int) -> tuple[list[int], list[float]]:
    """Return the keys to which a query can attend, and the values of the panel for this query and these keys."""
    found = {key: value for key, value in enumerate(panel.values[query].tolist()) if value == value}
    return list(found), list(found.values())


def decay_of(panel: Panel) -> tuple[list[int], list[float]]:
    """Return the distances, key minus query, and the mean of the numbers at each distance."""
    queries, keys = panel.values.shape
    means = {d: torch.nanmean(panel.values.diagonal(d)).item() for d in range(1 - queries, keys)}
    found = {distance: mean for distance, mean in means.items() if mean == mean}
    return list(found), list(found.values())

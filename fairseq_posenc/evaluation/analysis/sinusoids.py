"""Dot products of sinusoids by distance, without and with a random projection W (Yan et al. 2019; survey, Figure 6)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import torch

from ...ops.sinusoids import sinusoid
from ...plotting.style import add_legend, line_style, new_figure
from .results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PROJECTIONS = 2


def products(width: int, distance: int, grid: str, seed: int) -> dict[str, list[float]]:
    """Return a mapping from the name of a column to a list of dot products.

    The first column has no projection. Each other column has a random projection.

    The products are the dot products of the vectors of positions t and t + k, for k from -distance to distance.
    """
    at = torch.arange(2 * distance + 1)
    vectors = sinusoid(at, width, "halves", grid).double()
    middle = vectors[distance]
    generator = torch.Generator().manual_seed(seed)
    found = {"P_t . P_(t+k)": (vectors @ middle).tolist()}
    for number in range(1, _PROJECTIONS + 1):
        projection = torch.randn(width, width, generator=generator, dtype=torch.double) / width**0.5
        found[f"P_t W{number} P_(t+k)"] = (vectors @ (middle @ projection)).tolist()
    return found


def analyse(args: argparse.Namespace) -> Result:
    distances = list(range(-args.distance, args.distance + 1))
    found = products(args.width, args.distance, args.grid, args.seed)
    rows = [[k, *values] for k, *values in zip(distances, *found.values())]
    notes = [
        f"The vectors have {args.width} channels and the frequencies of {args.grid}. The position t is {args.distance}. "
        "The first column is equal for every t.",
        f"W1 and W2 are random matrices, with entries of variance 1/{args.width} (seed {args.seed}).",
        "The first column is symmetric: it depends on the distance of a word, but not on the side. A projection "
        "removes the symmetry.",
    ]

    def plot() -> Figure:
        figure, ((axis,),) = new_figure(6.5, 4)
        for number, (name, values) in enumerate(found.items()):
            axis.plot(distances, values, label=name, **{**line_style(number), "marker": None})
        axis.set(xlabel="k", ylabel="product")
        add_legend(figure, axis)
        return figure

    return Result("sinusoids", "Products of sinusoids by distance", ["k", *found], rows, notes, plot)

"""Similarity of position vectors, and prediction of positions and of their order from position vectors.

Wang and Chen (2020), What Do Position Embeddings Learn? An Empirical Study of Pre-Trained Language Model Positional Encoding.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core import PositionError
from ...plotting.matrices import position_vectors
from ...plotting.style import label_text, new_panels
from .results import Result
from .runs import Run, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOLDS, _PAIRS, _ITERATIONS = 5, 512, 1000
_FEWEST = 2 * _FOLDS  # minimum number of positions
_COLUMNS = 4  # maximum number of plots per line


def similarity(vectors: Tensor) -> Tensor:
    """Return the cosine of every pair of vectors: [T, C] -> [T, T]."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    return unit @ unit.mT


def absolute_error(vectors: Tensor, seed: int) -> float:
    """Predict positions from vectors by linear regression. Return the mean absolute error of the rounded predictions.

    The predictions are from five-fold cross-validation.
    """
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import KFold, cross_val_predict

    at = torch.arange(len(vectors)).numpy()
    folds = KFold(_FOLDS, shuffle=True, random_state=seed)
    found = cross_val_predict(LinearRegression(), vectors.double().numpy(), at, cv=folds)
    return float(abs(found.round() - at).mean())


def order_error(vectors: Tensor, seed: int) -> float:
    """Predict the order of two positions by logistic regression on the vectors of both positions. Return the error rate.

    The predictions are from five-fold cross-validation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, cross_val_predict

    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(len(vectors), (_PAIRS,), generator=generator)
    step = torch.randint(1, len(vectors), (_PAIRS,), generator=generator)
    second = (first + step) % len(vectors)  # a position that differs from `first`
    features = torch.cat([vectors[first], vectors[second]], -1).double().numpy()
    later = (second > first).numpy()
    folds = KFold(_FOLDS, shuffle=True, random_state=seed)
    found = cross_val_predict(LogisticRegression(max_iter=_ITERATIONS), features, later, cv=folds)
    return float((found != later).mean())


def vectors_of(run: Run, site: str, length: int) -> Tensor | None:
    """Return the position vectors [T, C] of a site, or None if its methods have no vectors.

    The vectors are the inputs of the query projection of the first layer, without layer normalization
    (`plotting.matrices.position_vectors`). Raise PositionError if the model has too few positions.
    """
    stack = run.model.encoder if site == "encoder" else run.model.decoder
    most = int(min(length, stack.max_positions()))
    if most < _FEWEST:
        raise PositionError(
            f"{run.path}: the model has at most {most} positions, which are too few for {_FOLDS} folds. "
            f"Expected at least {_FEWEST}. Leave this run out."
        )
    return position_vectors(stack.position, most)


def analyse(args: argparse.Namespace) -> Result:
    if args.length < _FEWEST:
        raise PositionError(f"--length {args.length}: too short for {_FOLDS} folds. Expected at least {_FEWEST}.")
    runs, rows, found = Runs(args.runs, args.data), [], {}
    for run in runs.measured(rows, 4, site=args.site):
        runs.progress.show(f"vectors: {run.title}")
        vectors = vectors_of(run, args.site, args.length)
        if vectors is None:
            rows.append([run.title, None, None, None, None])
            continue
        found[run.title] = alike = similarity(vectors)
        neighbours = float(alike.diagonal(1).mean())
        rows.append([run.title, len(vectors), neighbours, absolute_error(vectors, args.seed), order_error(vectors, args.seed)])
    if not found:
        raise PositionError(
            f"{', '.join(row[0] for row in rows if row[0] not in runs.unmeasured)}: no position vectors at site {args.site}. "
            "Expected a method that adds vectors to "
            "the embeddings, such as sinusoidal. For attention scores, run posenc plot RUN."
        )
    head = ["method", "positions", "cosine of neighbours", "absolute error", "order error"]
    notes = [
        f"The vectors are the input of the {args.site} before layer normalization. The word embeddings are zero, or one for "
        "methods that multiply them.",
        "'-': the method adds no vectors to the embeddings.",
        "absolute error: mean distance, in positions, between a position and the rounded prediction of a linear regression, with "
        "five-fold cross-validation.",
        "order error: share of wrong predictions of a logistic regression on the vectors of two positions, for "
        f"{_PAIRS} random pairs, with five-fold cross-validation over the pairs. With few positions, pairs for training and "
        "pairs for testing contain the same positions, so the error is smaller. The regression has an L2 penalty, so the error "
        "also depends on the size of the vectors.",
        "Learned vectors of positions that do not occur in training have initial values.",
    ]
    notes += runs.notes()
    arrays = {f"vectors_{number}.npy": alike.float().numpy() for number, alike in enumerate(found.values(), 1)}
    notes += [f"vectors_{number}.npy: cosines of {title}" for number, title in enumerate(found, 1)]
    return Result("vectors", "Position vectors", head, rows, notes, lambda: _plot(found), arrays=arrays)


def _plot(found: dict[str, Tensor]) -> Figure:
    figure, axes = new_panels(len(found), _COLUMNS, 3, 2.9)
    for axis, (title, alike) in zip(axes, found.items()):
        image = axis.imshow(alike.numpy(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest", rasterized=True)
        axis.set_title(label_text(title), loc="left")
        axis.grid(False)
    figure.colorbar(image, ax=axes, shrink=0.8, label="cosine")
    return figure

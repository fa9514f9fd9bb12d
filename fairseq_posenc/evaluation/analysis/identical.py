"""Attention between identical words. All differences between the scores result from the positions.

Wang et al. (2021), On Position Embeddings in BERT, describe the properties that `Indicators` contains. The formulas
are this project's reconstruction.
"""

from __future__ import annotations

import argparse
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core import AttentionContext, PositionError, Positions
from ...plotting.style import label_text, new_panels
from .results import Result
from .runs import Run, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEAR = 16  # monotonicity compares the scores at the distances k and k + 1, for k up to this number
_EQUAL = 1e-5  # maximum relative difference that counts as a rounding error
_COLUMNS = 5  # maximum number of plots per line
_MASKED = "#dcdcdc"  # colour of masked keys


@dataclass(frozen=True)
class Indicators:
    """Properties of attention between identical words.

    symmetry: 1 if the scores are symmetric.
    invariance: 1 if the scores depend only on the difference of the two positions (translation invariance).
    monotonicity: 1 if every score decreases when the distance increases by one.
    balance: above 1 if later words have more attention weight than earlier words. None if earlier words have no weight.

    symmetry, invariance and monotonicity are None if some keys are masked.
    """

    symmetry: float | None
    invariance: float | None
    monotonicity: float | None
    balance: float | None


@dataclass(frozen=True)
class Probe:
    """Means over words, for the first encoder layer.

    scores: scores before softmax, [H, T, T].
    weights: attention weights, [H, T, T]. The weights of a query are 0 if all its keys are masked.
    allowed: whether the query attends to the key, [H, T, T].
    """

    scores: Tensor
    weights: Tensor
    allowed: Tensor


def indicators(scores: Tensor, weights: Tensor, allowed: Tensor | None = None) -> Indicators:
    """Return the properties of attention (see `Indicators`) for the scores [T, T] and the weights [T, T].

    Scores and weights are from one head, or are means over heads. `allowed` [T, T] is False for masked keys. None: no key is
    masked.
    """
    if allowed is not None and not allowed.all():
        return Indicators(None, None, None, _balance(weights.double()))
    a, length = scores.double(), len(scores)
    symmetry = _symmetry(a)
    diagonals = [a.diagonal(k) for k in range(2 - length, length - 1)]  # diagonals with at least two scores
    spread = float(a.std(correction=0))
    constant = spread <= _EQUAL * max(1.0, float(a.abs().max()))
    within = sum(float(d.std(correction=0)) for d in diagonals) / len(diagonals)
    return Indicators(symmetry, 1.0 if constant else 1 - within / spread, _monotonicity(a), _balance(weights.double()))


def _symmetry(a: Tensor) -> float:
    """Return 1 - |C - C'| / (2 |C|), or 1 if C is 0. C' is the transpose of C.

    C is the matrix of scores without the means of its rows and columns: C = A - row means - column means + mean of A.
    The means are subtracted because a constant that is added to a row has no effect on the softmax.
    """
    c = a - a.mean(0, keepdim=True) - a.mean(1, keepdim=True) + a.mean()
    size = float(c.norm())
    return 1.0 if size <= _EQUAL * len(a) * max(1.0, float(a.abs().max())) else 1 - float((c - c.mT).norm()) / (2 * size)


def _monotonicity(a: Tensor) -> float:
    """Return the fraction of comparisons in which the score decreases when the distance increases by one.

    Each comparison is between the scores of one query at the distances k and k + 1. k is at most `_NEAR`. Differences
    that may be rounding errors do not count as a decrease.
    """
    above = _EQUAL * max(1.0, float(a.abs().max()))
    counted = fallen = 0
    for k in range(min(_NEAR, len(a) - 2) + 1):
        for near, far in ((a.diagonal(k)[:-1], a.diagonal(k + 1)), (a.diagonal(-k)[1:], a.diagonal(-k - 1))):
            counted += len(far)
            fallen += int((near > far + above).sum())
    return fallen / counted


def _balance(weights: Tensor) -> float | None:
    """Return the weight of later words divided by the weight of earlier words, or None if earlier words have no weight."""
    earlier = float(weights.tril(-1).sum())
    return float(weights.triu(1).sum()) / earlier if earlier > 1e-12 else None


@torch.no_grad()
def probe(run: Run, words: Tensor, length: int) -> Probe | None:
    """Return the scores, the attention weights and the allowed keys of the first encoder layer.

    Scores and weights are means over `words`. For each word, the input consists of `length` copies of this word. A key is
    allowed if it is allowed for every word. Return None if the method computes no scores, or if the encoder has no layers.
    """
    encoder = run.model.encoder
    positions = encoder.position
    if positions.uses("attend", 0) or not len(encoder.layers):
        return None
    total: list[Tensor] = []
    seen: list[Tensor] = []
    layer = encoder.layers[0]
    for word in words:
        tokens = torch.full((1, length), int(word))
        at = Positions.counted(0, length)
        ctx = positions.begin(AttentionContext(at, at, tokens=tokens), 1)
        x, _ = encoder.embed(tokens, ctx)
        ctx = positions.at_layer(ctx, 0)
        x = layer.before(layer.self_attn_layer_norm, positions.apply_chain("before_layer", x, ctx=ctx))
        here = ctx.replace(inputs=(x, x), project=layer.self_attn.project_one)
        q, k, _ = layer.self_attn.project(positions, here, x, x, x)
        mask = positions.mask(here)
        scores = layer.self_attn.logits(positions, here, q, k, mask.bias)[0]  # [H, T, T]
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool) if mask.allowed is None else mask.allowed[0]
        if mask.fully_masked is not None:
            allowed = allowed & ~mask.fully_masked[0]
        hidden = scores.where(allowed, float("-inf"))
        both = torch.stack([scores.expand(hidden.shape), hidden.softmax(-1).nan_to_num()])
        total = [both] if not total else [total[0] + both]
        seen = [allowed.expand(hidden.shape)] if not seen else [seen[0] & allowed]
    mean = total[0] / len(words)
    return Probe(mean[0], mean[1], seen[0])


def frequent_words(run: Run, number: int) -> Tensor:
    """Return the indices of the most frequent words of the dictionary, without special symbols."""
    words = run.words
    ranked = sorted(range(words.nspecial, len(words)), key=lambda index: (-words.count[index], index))
    real = [index for index in ranked if words.count[index] > 0 and not words.symbols[index].startswith("madeupword")]
    if not real:
        raise PositionError(
            f"{run.path}: the dictionary has no word counts. Expected the dictionary of the training data. Set the folder with "
            "--data FOLDER."
        )
    return torch.tensor(real[:number])


def analyse(args: argparse.Namespace) -> Result:
    if args.length < 3:
        raise PositionError(f"--length {args.length}: too short. Expected at least 3 words.")
    runs, rows, drawn, detail = Runs(args.runs, args.data), [], {}, []
    masked: list[str] = []
    lengths: set[int] = set()
    used: set[int] = set()
    for run in runs.measured(rows, 4, site="encoder"):
        words = frequent_words(run, args.words)
        used.add(len(words))
        runs.progress.show(f"identical words: {run.title}")
        length = int(min(args.length, run.model.encoder.max_positions()))
        if length < 3:
            raise PositionError(f"{run.path}: the model has at most {length} positions. Expected at least 3. Leave this run out.")
        lengths.add(length)
        found = probe(run, words, length)
        if found is None:
            rows.append([run.title, *[None] * 4])
            continue
        scores, weights, allowed = found.scores, found.weights, found.allowed
        masked += [run.title] * (not allowed.all())
        drawn[run.title] = scores.where(allowed, float("nan")).nanmean(0)
        rows.append([run.title, *astuple(indicators(scores.mean(0), weights.mean(0), allowed.all(0)))])
        heads = enumerate(zip(scores, weights, allowed))
        detail += [[run.title, str(head), *astuple(indicators(*own))] for head, own in heads]
    if not drawn:
        raise PositionError(
            f"{', '.join(row[0] for row in rows if row[0] not in runs.unmeasured)}: no attention scores, because the method "
            "replaces softmax attention. Expected a method with softmax attention."
        )
    columns = ["symmetry", "translation invariance", "monotonicity", "right/left"]
    notes = [
        "The table is computed from the first encoder layer (scores before softmax, and attention weights). The input "
        f"is {' or '.join(map(str, sorted(lengths)))} copies of one word. Scores and weights are means over "
        f"{' or '.join(map(str, sorted(used)))} words.",
        "The values are computed from these means, after a mean over heads. The CSV file contains the values of every head.",
        "symmetry: 1 - |C - C'| / (2 |C|), where C is the matrix of scores A after the means of rows and columns are "
        "removed. It is 1 if C is 0.",
        "translation invariance: 1 - mean over k of std_t A[t,t+k] / std A. It is 1 if A is constant.",
        f"monotonicity: fraction of distances up to {_NEAR} at which the score decreases with the next larger distance.",
        "right/left: attention weight of later words, divided by the attention weight of earlier words.",
        "'-': the method uses a kernel instead of softmax, so there are no scores.",
        *[
            f"{', '.join(masked)}: methods of the layer mask keys, so symmetry, translation invariance and monotonicity are not "
            "computed. Masked keys are grey in the plot. right/left is '-' if earlier words have no weight."
        ]
        * bool(masked),
        "The formulas are reconstructed, because the full text of the paper was not available.",
        *runs.notes(),
    ]
    by_head = ["method", "head", *columns], detail
    return Result("identical", "Identical words", ["method", *columns], rows, notes, lambda: _plot(drawn), detail=by_head)


def _plot(drawn: dict[str, Tensor]) -> Figure:
    figure, axes = new_panels(len(drawn), _COLUMNS, 2.6, 2.7)
    for axis, (title, scores) in zip(axes, drawn.items()):
        centred = scores - scores.nanmean()
        limit = max(float(centred.nan_to_num().abs().max()), 1e-3)
        axis.set_facecolor(_MASKED)  # masked keys are nan
        image = axis.imshow(centred.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest", rasterized=True)
        figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)
        axis.set_title(label_text(title), loc="left")
        axis.grid(False)
    return figure

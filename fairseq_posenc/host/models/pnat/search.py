"""The search for target positions in training: scores of inputs and target tokens, and matchings that assign positions.

z_i in `z` [B, T] is the target position of input i. Every row of z is a permutation that moves only the inputs where `inner`
[B, T] is True. The start symbol, the end symbol and the padding are not moved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ....ops.precision import at_least_float32


def inner_words(words: Tensor) -> Tensor:
    """Return a mask [B, T] that is True at all tokens except the first and the last token. `words` [B, T] is True at tokens."""
    inner = words & words.roll(-1, 1)  # False at the last token
    inner[:, -1:] = False
    inner[:, :1] = False
    return inner


def similarity(inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cosine between every decoder input and every embedded target token: [B, T, C] twice -> [B, T, T]."""
    inputs, targets = F.normalize(inputs.float(), dim=-1), F.normalize(targets.float(), dim=-1)
    return inputs @ targets.transpose(1, 2)


def log_probabilities(logits: Tensor, target: Tensor) -> Tensor:
    """Return the log-probability of every target token at every decoder input: [B, T, V], [B, T] -> [B, T, T]."""
    return at_least_float32(logits).log_softmax(-1).gather(2, target.unsqueeze(1).expand(-1, logits.size(1), -1))


def alignment_loss(scores: Tensor, inner: Tensor) -> Tensor:
    """Return the loss of IBM Model 1 (Brown et al., 1993) for log-probabilities [B, T, T].

    Equation: mean over target tokens j of -log(mean over inputs i of p(y_j | i)).
    """
    scores = scores.masked_fill(~inner.unsqueeze(2), float("-inf"))
    likelihood = scores.logsumexp(1) - inner.sum(1, keepdim=True).clamp(min=1).log()  # [B, T]
    return -likelihood[inner].sum() / inner.sum().clamp(min=1)


#: score of a pair whose input or position is already assigned. All other scores are larger
_TAKEN = torch.finfo(torch.float32).min


def greedy(scores: Tensor, inner: Tensor) -> Tensor:
    """Assign the pair with the largest score, then the remaining pair with the largest score, and so on: [B, T, T] -> z [B, T].

    For speed, all pairs with the largest score of their row and of their column are assigned at once. The result is the same
    as if one pair were assigned at a time.
    """
    return _mutual_best(scores, inner, lambda left: left)


def authors(scores: Tensor, inner: Tensor) -> Tensor:
    """Assign a target token to each decoder input, as in the authors' code: [B, T, T] -> z [B, T].

    Before every assignment, the scores of each row are normalised over the free columns.
    """
    return _mutual_best(scores, inner, lambda left: left.softmax(-1).masked_fill(left == _TAKEN, _TAKEN))


def _mutual_best(scores: Tensor, inner: Tensor, compared: Callable[[Tensor], Tensor]) -> Tensor:
    """Assign each pair whose value is the largest in its row and in its column: [B, T, T] -> z [B, T].

    Repeat this step with the remaining rows and columns until all rows are assigned.

    `compared` computes the values from the scores. Pairs whose row or column is already assigned have the score _TAKEN.
    """
    scores = scores.float().clamp(min=_TAKEN / 2)
    at = torch.arange(scores.size(1), device=scores.device).expand_as(inner)
    z, rows, columns = at.clone(), inner, inner
    while rows.any():
        left = compared(scores.masked_fill(~(rows.unsqueeze(2) & columns.unsqueeze(1)), _TAKEN))
        column, row = left.argmax(2), left.argmax(1)  # [B, T] each
        mutual = rows & row.gather(1, column).eq(at)
        z = torch.where(mutual, column, z)
        rows = rows & ~mutual
        columns = columns & torch.zeros_like(z).scatter_add_(1, column, mutual.long()).eq(0)
    return z


def hungarian(scores: Tensor, inner: Tensor) -> Tensor:
    """Return the permutation with the largest sum of scores: [B, T, T] -> z [B, T].

    scipy computes it on the CPU, one sentence at a time.
    """
    from scipy.optimize import linear_sum_assignment

    z = torch.arange(scores.size(1)).repeat(len(scores), 1)
    for row, table, free in zip(z, scores.detach().float().cpu(), inner.cpu()):
        found = free.nonzero().squeeze(1)
        rows, columns = linear_sum_assignment(table[found][:, found].numpy(), maximize=True)
        row[found[torch.as_tensor(rows)]] = found[torch.as_tensor(columns)]
    return z.to(scores.device)


#: value of --position-search or --position-matching -> function
MATCHINGS = {"greedy": greedy, "authors": authors, "hungarian": hungarian}


def moved(x: Tensor, z: Tensor) -> Tensor:
    """Move every input i to its target position z_i: [B, T, C] -> [B, T, C]."""
    return x.gather(1, z.argsort(1).unsqueeze(-1).expand_as(x))


def accuracy(found: Tensor, wanted: Tensor, inner: Tensor, near: int = 4) -> dict[str, Tensor]:
    """Count correct positions, and pairs of inputs in the correct order. Return {name: [number correct, total number]}.

    "position" counts correct positions. "order" counts pairs of inputs in the correct order. "near_order" counts only the pairs
    whose wanted positions have a distance of at most `near`.
    """
    distance = wanted.unsqueeze(2) - wanted.unsqueeze(1)  # [B, T, T]
    right = (found.unsqueeze(2) - found.unsqueeze(1)).sign().eq(distance.sign())
    pairs = (inner.unsqueeze(2) & inner.unsqueeze(1)).triu(1)
    close = pairs & (distance.abs() <= near)
    return {
        "position": torch.stack([(found.eq(wanted) & inner).sum(), inner.sum()]),
        "order": torch.stack([(right & pairs).sum(), pairs.sum()]),
        "near_order": torch.stack([(right & close).sum(), close.sum()]),
    }

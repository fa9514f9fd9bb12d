"""The heuristic search of positions, and the matchings it is made of.

Positions `z` [B, T] say at which target position each input stands. Only inputs where `inner` [B, T] is true are moved; the
others, the two ends of a sentence and its padding, keep their place. So every row of z is a permutation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ....ops.precision import at_least_float32


def inner_words(words: Tensor) -> Tensor:
    """Return the words between the two ends of every sentence: [B, T], true at words -> [B, T]."""
    inner = words & words.roll(-1, 1)  # without the last word
    inner[:, -1:] = False
    inner[:, :1] = False
    return inner


def similarity(inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cosine of every decoder input and every embedded target word: [B, T, C] twice -> [B, T, T]."""
    inputs, targets = F.normalize(inputs.float(), dim=-1), F.normalize(targets.float(), dim=-1)
    return inputs @ targets.transpose(1, 2)


def log_probabilities(logits: Tensor, target: Tensor) -> Tensor:
    """Return the log-probability of every target word at every decoder input: [B, T, V], [B, T] -> [B, T, T]."""
    return at_least_float32(logits).log_softmax(-1).gather(2, target.unsqueeze(1).expand(-1, logits.size(1), -1))


def alignment_loss(scores: Tensor, inner: Tensor) -> Tensor:
    """IBM Model 1 (Brown et al., 1993): -log of the mean over inputs i of p(y_j | i), a mean over words j: [B, T, T] -> [].

    A word may come from any input alike, so that which one it comes from is learnt from the sentences alone.
    """
    scores = scores.masked_fill(~inner.unsqueeze(2), float("-inf"))
    likelihood = scores.logsumexp(1) - inner.sum(1, keepdim=True).clamp(min=1).log()  # [B, T]
    return -likelihood[inner].sum() / inner.sum().clamp(min=1)


#: score of a pair that is already assigned; scores of free pairs are larger
_TAKEN = torch.finfo(torch.float32).min


def greedy(scores: Tensor, inner: Tensor) -> Tensor:
    """Return the pair of the largest score to each other, then the largest among those left: [B, T, T] -> z [B, T].

    Every pair that is the largest of its row and of its column can be taken at once, with the same result.
    """
    return _mutual_best(scores, inner, lambda left: left)


def authors(scores: Tensor, inner: Tensor) -> Tensor:
    """The authors' variant, [B, T, T] -> z [B, T]: scores are normalised over the free columns of each row in every round."""
    return _mutual_best(scores, inner, lambda left: left.softmax(-1).masked_fill(left == _TAKEN, _TAKEN))


def _mutual_best(scores: Tensor, inner: Tensor, compared: Callable[[Tensor], Tensor]) -> Tensor:
    """Take all pairs that are the largest of their row and of their column, round by round: [B, T, T] -> z [B, T].

    `compared` makes the numbers that are compared from the scores, in which pairs that are not free are _TAKEN.
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
    """Return the permutation with the largest sum of scores: [B, T, T] -> z [B, T]; on the CPU, one sentence after the other."""
    from scipy.optimize import linear_sum_assignment

    z = torch.arange(scores.size(1)).repeat(len(scores), 1)
    for row, table, free in zip(z, scores.detach().float().cpu(), inner.cpu()):
        found = free.nonzero().squeeze(1)
        rows, columns = linear_sum_assignment(table[found][:, found].numpy(), maximize=True)
        row[found[torch.as_tensor(rows)]] = found[torch.as_tensor(columns)]
    return z.to(scores.device)


#: --position-search and --position-matching -> their functions
MATCHINGS = {"greedy": greedy, "authors": authors, "hungarian": hungarian}


def moved(x: Tensor, z: Tensor) -> Tensor:
    """Put every input at its target position, so that position z_i holds input i: [B, T, C] -> the same."""
    return x.gather(1, z.argsort(1).unsqueeze(-1).expand_as(x))


def accuracy(found: Tensor, wanted: Tensor, inner: Tensor, near: int = 4) -> dict[str, Tensor]:
    """Return the numbers of correct positions and of pairs in the correct order: all pairs, and pairs at most `near` apart.

    Each count comes with its total: {name: [correct, total]}.
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

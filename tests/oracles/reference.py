"""Attention as plain loops over float64 numbers, which every method is compared with.

An oracle is written from its paper's equation alone. Nothing here or in an oracle_*.py comes from fairseq_posenc or torch:
only numbers reach them, so a mistake in the package cannot repeat itself here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in a model a number is asked for, and all that it may depend on beside content and positions."""

    site: str
    heads: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    parameters: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    max_positions: int = 12
    padding_idx: int = 1
    layer: int = 0
    head: int = 0

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def own(self, name: str) -> np.ndarray:
        """What this layer and head have of a table [layers or 1, heads or 1, ...]."""
        table = self.parameters[name]
        return table[self.layer if table.shape[0] > 1 else 0, self.head if table.shape[1] > 1 else 0]


def product(q: np.ndarray, k: np.ndarray, t: int, s: int, at: Place) -> float:
    """The attention of Vaswani et al. without positions."""
    return q @ k / math.sqrt(len(q))


@dataclasses.dataclass(frozen=True)
class Oracle:
    """One equation and the specs that it holds for: `cases` are pairs of options and sites.

    score(q, k, t, s, at) is a head's logit, or nan where the equation says nothing because the site hides it anyway;
    value(v, t, s, at) what query t reads from a key; allowed(t, s, at) whether it may look there at all.
    query_input and key_input (x, t, at) come before the projections, embed(x [T, C], ids, at) before the layers and
    before_layer before each of them. head(values, t, seen, at) replaces a whole head.
    `random` marks what is only equal on average and `real` what is defined between whole positions;
    `reach` is the number of positions that may be asked for, if limited.
    """

    name: str
    cases: list[tuple[dict[str, Any], str]]
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    score: Callable = product
    value: Callable = lambda v, t, s, at: v
    allowed: Callable = lambda t, s, at: True
    query_input: Callable = lambda x, t, at: x
    key_input: Callable = lambda x, s, at: x
    embed: Callable | None = None
    before_layer: Callable | None = None
    head: Callable | None = None
    random: bool = False
    real: bool = False
    reach: int | None = None
    atol: float = 1e-9


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return weight @ x + bias


def softmax(logits: list[float]) -> np.ndarray:
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return np.array(powers) / sum(powers)


def split(x: np.ndarray, head: int, heads: int) -> np.ndarray:
    width = len(x) // heads
    return x[head * width : (head + 1) * width]


def count(padding: np.ndarray) -> list[int]:
    """Positions that count real tokens from 0; padding gets the next one, which nobody sees."""
    ids, seen = [], 0
    for padded in padding:
        ids.append(seen)
        seen += 0 if padded else 1
    return ids


def scores(oracle: Oracle, at: Place, projections: dict, query, key, query_ids, key_ids) -> np.ndarray:
    """Logits before any mask: [B, T, C], [B, S, C], positions [B, T], [B, S] -> [B, H, T, S]."""
    out = np.full((len(query), at.heads, query.shape[1], key.shape[1]), np.nan)
    for b in range(len(query)):
        for head in range(at.heads):
            here = dataclasses.replace(at, head=head)
            q = _projected("q", query[b], query_ids[b], oracle.query_input, projections, here)
            k = _projected("k", key[b], key_ids[b], oracle.key_input, projections, here)
            for column, t in enumerate(query_ids[b]):
                for row, s in enumerate(key_ids[b]):
                    out[b, head, column, row] = oracle.score(q[column], k[row], t, s, here)
    return out


def attention(oracle: Oracle, at: Place, projections: dict, query, key, value, padding) -> tuple[np.ndarray, np.ndarray]:
    """-> outputs [B, T, C] and weights of the average head [B, T, S]; nan in the rows of padded queries.

    Self-attention pads queries as keys; cross-attention has no padding among its queries.
    """
    batch, length, width = query.shape
    merged, weights = np.zeros((batch, length, width)), np.zeros((batch, length, key.shape[1]))
    for b in range(batch):
        key_ids = count(padding[b])
        query_ids = list(range(length)) if at.site == "cross" else key_ids
        for head in range(at.heads):
            here = dataclasses.replace(at, head=head)
            q = _projected("q", query[b], query_ids, oracle.query_input, projections, here)
            k = _projected("k", key[b], key_ids, oracle.key_input, projections, here)
            v = _projected("v", value[b], key_ids, lambda x, s, at: x, projections, here)
            for column, t in enumerate(query_ids):
                seen = [
                    row
                    for row, s in enumerate(key_ids)
                    if not padding[b, row] and not (at.site == "decoder" and row > column) and oracle.allowed(t, s, here)
                ]
                if oracle.head is not None:
                    merged[b, column, head * len(v[0]) :][: len(v[0])] = oracle.head(v, column, seen, here)
                    continue
                shares = softmax([oracle.score(q[column], k[row], t, key_ids[row], here) for row in seen]) if seen else []
                for row, share in zip(seen, shares):  # a query that may look nowhere reads nothing
                    merged[b, column, head * len(v[0]) :][: len(v[0])] += share * oracle.value(v[row], t, key_ids[row], here)
                    weights[b, column, row] += share / at.heads
    outputs = np.array([[linear(x, *projections["out"]) for x in sentence] for sentence in merged])
    if at.site != "cross":
        outputs[padding], weights[padding] = np.nan, np.nan
    return outputs, weights


def _projected(which: str, x: np.ndarray, ids: list, change: Callable, projections: dict, at: Place) -> list:
    """A head's vector of every column; nothing where the attention has no such projection."""
    if which not in projections:
        return [None] * len(x)
    return [split(linear(change(x[i], position, at), *projections[which]), at.head, at.heads) for i, position in enumerate(ids)]

"""Attention as plain loops over float64 numbers, which every method is compared with.

An oracle is written from its paper's equation alone. Nothing here or in an oracle_*.py comes from fairseq_posenc or torch:
only numbers reach them, so a mistake in the package cannot repeat itself here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in a model a number is requested, and all that it may depend on beside content and positions."""

    site: str
    heads: int
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    parameters: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    max_positions: int = 12
    padding_idx: int = 1
    layer: int = 0
    layers: int = 1
    head: int = 0
    projections: dict[str, tuple] = dataclasses.field(default_factory=dict)
    query_ids: Sequence[Any] = ()  # the position of every column
    key_ids: Sequence[Any] = ()
    real: Sequence[int] = ()  # the key columns that are not padding
    inputs: tuple = ()  # queries, keys and values of all columns before their projections
    sentences: Sequence[Any] = ()  # what is known of each sentence beside its tokens: words, heads, relations, order
    sentence: Any = None  # the one that is looked at
    words: Sequence[str] = ()  # of the sentence, where embeddings are requested
    side: dict[str, Any] = dataclasses.field(default_factory=dict)  # side inputs of the sentence

    @property
    def causal(self) -> bool:
        return self.site == "decoder"

    def of_sentence(self, row: int) -> Place:
        return dataclasses.replace(self, sentence=self.sentences[row] if self.sentences else None)

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def own(self, name: str) -> np.ndarray:
        """What this layer and head have of a table [layers or 1, heads or 1, ...]."""
        table = self.parameters[name]
        return table[self.layer if table.shape[0] > 1 else 0, self.head if table.shape[1] > 1 else 0]


def product(q: np.ndarray, k: np.ndarray, t: int, s: int, at: Place) -> float:
    """Return the attention of Vaswani et al. without positions."""
    return q @ k / math.sqrt(len(q))


@dataclasses.dataclass(frozen=True)
class Oracle:
    """One equation and the specs that it holds for: `cases` are pairs of options and sites.

    score(q, k, t, s, at) is a head's logit, or nan where the equation says nothing because the site hides it anyway;
    value(v, t, s, at) what query t reads from a key; allowed(t, s, at) whether it may look there at all.
    position(t, at) is what evaluation makes of a position.
    query_input, key_input and value_input (x, t, at) come before the projections, embed(x [T, C], ids, at) before the layers and
    before_layer before each of them. With `seen`, the key columns that a query may look at,
    row(q, k, column, seen, at) gives all logits of a query where they depend on more than one key,
    plus(values, column, seen, at) is added to a head's output, head(values, column, seen, at) replaces it, and
    output(column, seen, at) replaces the projections too.
    side(b) are the side inputs of sentence b, which embed reads.
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
    value_input: Callable = lambda x, s, at: x
    position: Callable = lambda t, at: t
    embed: Callable | None = None
    before_layer: Callable | None = None
    side: Callable = lambda b: {}
    row: Callable | None = None
    plus: Callable | None = None
    head: Callable | None = None
    output: Callable | None = None
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


def logits(oracle: Oracle, q, k, column: int, seen: list[int], at: Place) -> list[float]:
    """Of one query and the keys that it may look at."""
    if oracle.row is not None:
        return oracle.row(q, k, column, seen, at)
    return [oracle.score(q[column], k[row], at.query_ids[column], at.key_ids[row], at) for row in seen]


def scores(oracle: Oracle, at: Place, projections: dict, query, key, query_ids, key_ids) -> np.ndarray:
    """Logits of all keys that causality allows: [B, T, C], [B, S, C], positions [B, T], [B, S] -> [B, H, T, S], else nan."""
    out = np.full((len(query), at.heads, query.shape[1], key.shape[1]), np.nan)
    for b, head in np.ndindex(out.shape[:2]):
        columns = list(range(key.shape[1]))
        here = _here(at, b, head, projections, query[b], key[b], key[b], query_ids[b], key_ids[b], columns)
        q, k = projected("q", oracle, here), projected("k", oracle, here)
        for column in range(query.shape[1]):
            # bare scores know no mask, but a whole row may only be made of what causality lets a query see
            seen = columns[: column + 1] if oracle.row is not None and at.causal else columns
            out[b, head, column, seen] = logits(oracle, q, k, column, seen, here)
    return out


def attention(oracle: Oracle, at: Place, projections: dict, query, key, value, padding) -> tuple[np.ndarray, np.ndarray]:
    """-> outputs [B, T, C] and weights of the average head [B, T, S]; nan in the rows of padded queries.

    Self-attention pads queries as keys; cross-attention has no padding among its queries.
    """
    batch, length, width = query.shape
    merged, weights = np.zeros((batch, length, width)), np.zeros((batch, length, key.shape[1]))
    for b, head in np.ndindex(batch, at.heads):
        key_ids = count(padding[b])
        query_ids = list(range(length)) if at.site == "cross" else key_ids
        real = [row for row in range(len(key_ids)) if not padding[b, row]]
        here = _here(at, b, head, projections, query[b], key[b], value[b], query_ids, key_ids, real)
        q, k, v = (projected(which, oracle, here) for which in "qkv")
        for column, t in enumerate(query_ids):
            if not (at.site == "cross" or column in real):
                continue
            part = merged[b, column, head * width // at.heads :][: width // at.heads]
            seen = [row for row in real if not (at.causal and row > column) and oracle.allowed(t, key_ids[row], here)]
            if oracle.output is not None:
                part += oracle.output(column, seen, here)
            elif oracle.head is not None:
                part += oracle.head(v, column, seen, here)
            else:
                shares = softmax(logits(oracle, q, k, column, seen, here)) if seen else []
                for row, share in zip(seen, shares):  # a query that may look nowhere reads nothing
                    part += share * oracle.value(v[row], t, key_ids[row], here)
                    weights[b, column, row] += share / at.heads
                part += 0 if oracle.plus is None else oracle.plus(v, column, seen, here)
    outputs = np.array([[linear(x, *projections["out"]) for x in sentence] for sentence in merged])
    if at.site != "cross":
        outputs[padding], weights[padding] = np.nan, np.nan
    return outputs, weights


def _here(at: Place, row: int, head: int, projections: dict, query, key, value, query_ids, key_ids, real) -> Place:
    return dataclasses.replace(
        at.of_sentence(row),
        head=head, projections=projections, query_ids=query_ids, key_ids=key_ids, real=real, inputs=(query, key, value),
    )  # fmt: skip


def projected(which: str, oracle: Oracle, at: Place) -> list:
    """Return the head's vector of every column: of the input as it is where the attention has no such projection."""
    change = {"q": oracle.query_input, "k": oracle.key_input, "v": oracle.value_input}[which]
    ids = at.query_ids if which == "q" else at.key_ids
    changed = [change(x, position, at) for x, position in zip(at.inputs["qkv".index(which)], ids)]
    if which in at.projections:
        changed = [linear(x, *at.projections[which]) for x in changed]
    return [split(x, at.head, at.heads) for x in changed]

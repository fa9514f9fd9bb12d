"""A reference implementation of attention, with loops over float64 numbers. It calls the functions of an oracle.

An oracle contains the equation of one method as functions. It is written only from the paper. This file and the files oracle_*.py
import neither fairseq_posenc nor torch, so that they do not share errors with the package.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Place:
    """Inputs that the functions of an oracle receive as one argument, such as site, layer, head, options and parameters."""

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
    query_ids: Sequence[Any] = ()  # position of every query. `key_ids`: position of every key
    key_ids: Sequence[Any] = ()
    real: Sequence[int] = ()  # columns of the keys that are not padding
    inputs: tuple = ()  # queries, keys and values before the projections
    sentences: Sequence[Any] = ()  # structure of each sentence of the batch: words, heads, relations, edges, order
    sentence: Any = None  # the current sentence
    words: Sequence[str] = ()  # words of the current sentence, for embed
    side: dict[str, Any] = dataclasses.field(default_factory=dict)  # side inputs of the current sentence, for embed

    @property
    def causal(self) -> bool:
        return self.site == "decoder"

    def of_sentence(self, row: int) -> Place:
        return dataclasses.replace(self, sentence=self.sentences[row] if self.sentences else None)

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def own(self, name: str) -> np.ndarray:
        """Return the part of a parameter [layers or 1, heads or 1, ...] that this layer and head use."""
        table = self.parameters[name]
        return table[self.layer if table.shape[0] > 1 else 0, self.head if table.shape[1] > 1 else 0]


def product(q: np.ndarray, k: np.ndarray, t: int, s: int, at: Place) -> float:
    """Return the scaled dot product of Vaswani et al. (2017)."""
    return q @ k / math.sqrt(len(q))


@dataclasses.dataclass(frozen=True)
class Oracle:
    """The equation of one method as functions, and the cases for which tests compare the equation with the method.

    Indices: t and s are positions of a query and of a key. `column` is the index of a query in the padded sentence. `seen`
    contains the indices, in the padded sentence, of the keys that the query can attend to. `at` is a Place.

    Args:
        cases: pairs of options and sites.
        score(q, k, t, s, at): score of a head, or nan if the score is undefined, for example for a later key in the decoder.
        value(v, t, s, at): vector that query t reads from key s.
        allowed(t, s, at): whether query t can attend to key s.
        position(t, at): position of a token in evaluation.
        query_input, key_input, value_input(x, t, at): input of a projection.
        embed(x [T, C], ids, at): input of the first layer.
        before_layer: input of every layer.
        row(q, k, column, seen, at): all scores of a query, if a score depends on several keys.
        plus(values, column, seen, at): vector that is added to the output of a head.
        head(values, column, seen, at): vector that replaces the output of a head.
        output(column, seen, at): vector that replaces the output of the whole attention.
        side(b): side inputs of sentence b, for embed.
        random: whether the equation is true only on average.
        real: whether the equation is defined for fractional positions.
        reach: maximum number of positions, or None.
        atol: largest difference that is allowed. A method that computes in float32 needs about 1e-6.
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
    """Return the position of every token, counted from 0. Padding is not counted.

    The result also contains a number for each padding token. The oracle does not use this number.
    """
    return [sum(not padded for padded in padding[:column]) for column in range(len(padding))]


def logits(oracle: Oracle, q, k, column: int, seen: list[int], at: Place) -> list[float]:
    """Return the scores of one query for several keys.

    `column` is the index of the query. `seen` contains the indices of the keys.
    """
    if oracle.row is not None:
        return oracle.row(q, k, column, seen, at)
    return [oracle.score(q[column], k[row], at.query_ids[column], at.key_ids[row], at) for row in seen]


def scores(oracle: Oracle, at: Place, projections: dict, query, key, query_ids, key_ids) -> np.ndarray:
    """Return all scores. Undefined scores are nan.

    Shapes: query [B, T, C], key [B, S, C], query_ids [B, T], key_ids [B, S] -> [B, H, T, S].
    """
    out = np.full((len(query), at.heads, query.shape[1], key.shape[1]), np.nan)
    for b, head in np.ndindex(out.shape[:2]):
        columns = list(range(key.shape[1]))
        here = _here(at, b, head, projections, query[b], key[b], key[b], query_ids[b], key_ids[b], columns)
        q, k = projected("q", oracle, here), projected("k", oracle, here)
        for column in range(query.shape[1]):
            # masks are not applied, but `row` receives only the keys that a causal mask allows
            seen = columns[: column + 1] if oracle.row is not None and at.causal else columns
            out[b, head, column, seen] = logits(oracle, q, k, column, seen, here)
    return out


def attention(oracle: Oracle, at: Place, projections: dict, query, key, value, padding) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs [B, T, C], and weights averaged over heads [B, T, S].

    In self-attention, queries have the same padding as keys, and the results are nan at padding. In cross-attention, queries have
    no padding.
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
                for row, share in zip(seen, shares):  # empty for a query without keys
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
    """Return the query, key or value vector of this head for every column.

    The vector is the projected input. If there is no projection, the vector is the input.
    """
    change = {"q": oracle.query_input, "k": oracle.key_input, "v": oracle.value_input}[which]
    ids = at.query_ids if which == "q" else at.key_ids
    changed = [change(x, position, at) for x, position in zip(at.inputs["qkv".index(which)], ids)]
    if which in at.projections:
        changed = [linear(x, *at.projections[which]) for x in changed]
    return [split(x, at.head, at.heads) for x in changed]

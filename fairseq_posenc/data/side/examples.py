"""Generate random sentences and their side inputs, for benchmarks, plots and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ...core import END_RELATION, FIRST_RELATION, PositionMethod, Sentence

#: number of relation labels of `random_sentence`, for `Dims.relations`
RELATIONS = FIRST_RELATION + 3


def random_sentence(tokens: Sequence[int], relations: int = RELATIONS) -> Sentence:
    """Return a random tree, graph and reordering for a sentence of these tokens.

    The tokens are the seed of the random numbers. Some words have several tokens. The indices of relation labels are below
    `relations`.
    """
    size, generator = len(tokens), np.random.default_rng([*map(int, tokens), len(tokens)])
    begins = generator.random(size) < 0.7
    begins[[0, -1]] = True  # </s> is a word
    words = np.cumsum(begins) - 1
    count = int(words[-1])  # words before </s>
    heads, grown = np.full(count + 1, -1), generator.permutation(count)
    for place, word in enumerate(grown[1:], 1):
        heads[word] = grown[generator.integers(max(0, place - 8), place)]
    names = generator.integers(min(FIRST_RELATION, relations - 1), relations, count + 1)
    order = np.append(generator.permutation(count), count)
    edges = generator.integers(max(count, 1), size=(count, 2))  # some words have no edge, others are in a cycle
    edges = np.column_stack([edges, generator.integers(min(FIRST_RELATION, relations - 1), relations, count)])
    edges = edges[edges[:, 0] != edges[:, 1]]
    if count:
        heads[count], names[count] = grown[0], END_RELATION
        edges = np.append(edges, [[grown[0], count, END_RELATION]], 0)
    return Sentence(words, heads, names, edges, order)


def side_inputs(
    methods: Iterable[PositionMethod], sentences: Iterable[Sentence], length: int, left_pad: bool = False
) -> dict[str, Tensor]:
    """Return the side inputs of these methods for a batch of sentences, padded to `length` tokens.

    Without a method that reads side inputs, the sentences are not computed.
    """
    reading = [method for method in methods if method.card.side_inputs]
    batch = list(sentences) if reading else []
    found = {}
    for method in reading:
        made = [_values(method, sentence) for sentence in batch]
        for side in method.card.side_inputs:
            found[side.name] = side.collate([torch.as_tensor(values[side.name]) for values in made], length, left_pad)
    return found


def _values(method: PositionMethod, sentence: Sentence) -> dict[str, np.ndarray]:
    """Return the side inputs of a method for one sentence.

    A side input with one value per sentence (axes "B") contains the requested output length in tokens. Here, this length is the
    number of tokens of the sentence without </s>.
    """
    made = dict(method.side_values(sentence, method.options)) if any(side.files for side in method.card.side_inputs) else {}
    lengths = {side.name: np.array(len(sentence.words) - 1) for side in method.card.side_inputs if side.axes == "B"}
    return {**lengths, **made}

"""Segment attention of DIET, equation 2, and the vectors of sentences at the input (Chen et al. 2021, Lupo et al. 2023).

test_documents.py calls these functions with documents. All other tests use one sentence without separators.
"""

import numpy as np

from fairseq_posenc.testing.reference import Oracle

from .oracle_documents import before, label, vector


def segment(words, i, at):
    """Return the sentence number. A separator is the last word of its sentence. Sentences beyond the table use the last row."""
    return min(before(words, i, at["separator"]), at["segments"] - 1)


def bias(words, t, s, at):
    return at.parameters["table"][at.layer, at.head, segment(words, t, at), segment(words, s, at)]


def with_vector(x, i, words, source, at):
    return x + vector(label(words, i, source, at), len(x), at)


def embed(x, ids, at):
    return np.array([with_vector(row, 0, ["a"], ["a"], at) for row in x])


def before_layer(x, ids, at):
    """Add the vectors before every layer except the first. The input of the first layer already contains the vectors."""
    return x if at.layer == 0 else embed(x, ids, at)


DEFAULTS = {
    "place": "heads",
    "segments": 8,
    "separator": "<sep>",
    "vectors": "learned",
    "count": "start",
    "every_layer": False,
}
AT_INPUT_CASES = [
    ({"place": "input"}, "encoder decoder"),
    ({"place": "input", "segments": 2}, "encoder decoder"),
    ({"place": "input", "segments": 3, "separator": "b"}, "encoder"),
    ({"place": "input", "count": "end"}, "encoder decoder"),
    ({"place": "input", "vectors": "sinusoidal"}, "encoder decoder"),
    ({"place": "input", "vectors": "onehot", "count": "end"}, "encoder decoder"),
]

PER_HEAD = Oracle(
    "segments",
    defaults=DEFAULTS,
    cases=[({}, "encoder decoder"), ({"segments": 2}, "encoder decoder"), ({"segments": 3, "separator": "b"}, "encoder decoder")],
)
AT_INPUT = Oracle("segments", embed=embed, defaults=DEFAULTS, cases=AT_INPUT_CASES, atol=1e-6)
EVERY_LAYER = Oracle(
    "segments",
    embed=embed,
    before_layer=before_layer,
    defaults=DEFAULTS,
    cases=[({"place": "input", "every_layer": True}, "encoder decoder")],
)
ORACLES = [PER_HEAD, AT_INPUT, EVERY_LAYER]

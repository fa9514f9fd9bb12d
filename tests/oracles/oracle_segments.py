"""Segment attention of DIET, their eq. (2), and the segment embeddings at the input that it replaces (Chen et al. 2021).

The frame of the other tests knows no words, hence one segment: test_segments.py gives these functions sentences.
"""

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def segment(words, i, at):
    """A separator is the last word of its segment; segments that have no row of their own use the last."""
    return min(sum(word == at["separator"] for word in words[:i]), at["segments"] - 1)


def bias(words, t, s, at):
    return at.parameters["table"][at.layer, at.head, segment(words, t, at), segment(words, s, at)]


def embed(x, ids, at, words=()):
    return np.array([x[i] + at.parameters["table"][segment(words, i, at)] for i in range(len(x))])


DEFAULTS = {"place": "heads", "segments": 8, "separator": "</s>"}
OTHERS = [{}, {"segments": 2}, {"segments": 3, "separator": "<sep>"}]

PER_HEAD = Oracle("segments", defaults=DEFAULTS, cases=[(options, "encoder") for options in OTHERS])
AT_INPUT = Oracle(
    "segments", embed=embed, defaults=DEFAULTS, cases=[({"place": "input", **options}, "encoder") for options in OTHERS]
)
ORACLES = [PER_HEAD, AT_INPUT]

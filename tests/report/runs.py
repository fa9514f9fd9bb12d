"""Runs without training: score.json files of artificial systems.

Each system replaces every word of the reference by a random word with a given probability.
"""

import copy
import functools
import random

from fairseq_posenc.evaluation.scoring.score import measure
from fairseq_posenc.evaluation.scoring.sentences import count

WORDS = "the a dog cat house tree sees finds takes old small red never often here there".split()


def texts(sentences=120, longest=24, seed=0):
    return list(_texts(sentences, longest, seed))


@functools.cache
def _texts(sentences, longest, seed):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, longest))) + " ." for _ in range(sentences)]


def spoilt(references, rate, seed=0):
    chance = random.Random(f"{rate} {seed}")
    return [" ".join(chance.choice(WORDS) if chance.random() < rate else word for word in line.split()) for line in references]


def run(spec, seed=1, rate=0.3, references=None, part="test", **fields):
    scores = {
        **copy.deepcopy(_scores(rate, seed, tuple(references or texts()))),
        "reference": "abc",
        "source": "def",
        "decoding": {"beam": 4, "lenpen": 1.0, "post_process": "sentencepiece"},
    }
    return {
        "arch": "posenc_transformer_tiny",
        "method": {"encoder": spec, "decoder": spec, "cross": "none"},
        "signature": {},
        "seed": seed,
        "updates": 800,
        "settings": {"lr": [0.003], "cpu": True},
        "data": "9f3c",
        "versions": {"posenc": "0.1.0", "sacrebleu": "2.6.0"},
        "parameters": 1000 + 10 * len(spec),
        "tokens_per_second": 12345,
        "learning_curve": [[200, 5 + rate], [400, 3 + rate], [800, 2 + rate + seed / 50]],
        "training_seconds": 3725.0,
        "peak_memory": {"of": "process", "gib": 0.5 + seed / 10},
        "device": None,
        "parts": {part: scores},
        **fields,
    }


@functools.cache
def _scores(rate, seed, references):
    """Return the scores of one system, with the statistics of its sentences. They are computed once, because this is slow."""
    hypotheses, words = spoilt(references, rate, seed), [len(line.split()) for line in references]
    return {**measure(hypotheses, list(references)), "statistics": count(hypotheses, list(references), words).pack()}

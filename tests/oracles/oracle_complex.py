"""Complex word embeddings (Wang et al. 2020): amplitude, frequency and initial phase of every word and dimension."""

import cmath
import math

import numpy as np

from fairseq_posenc.testing.reference import Oracle


def wave(amplitude: float, frequency: float, phase: float, t: float) -> complex:
    """Return g(u, t), the complex value of one dimension of word u at position t."""
    return amplitude * cmath.exp(1j * (frequency * t + phase))


def frequency_of(word: int, k: int, width: int, at) -> float:
    if not at["learned"]:
        return 10000.0 ** (-2 * (k // 2) / width)
    table = at.parameters["frequency"]
    return {"word_and_dimension": lambda: table[word, k], "word": lambda: table[word, 0], "dimension": lambda: table[k]}[
        at["frequencies"]
    ]()


def embed_words(x, ids, words, at):
    width = x.shape[1] // 2
    out = np.zeros(x.shape)
    for i, t in enumerate(ids):
        for k in range(width):
            re, im = x[i, k], x[i, width + k]
            g = wave(math.hypot(re, im), frequency_of(words[i], k, width, at), math.atan2(im, re), t + at["first_position"])
            out[i, k], out[i, width + k] = g.real, g.imag
    return out


def embed(x, ids, at):
    """Embed words. All words of the test are the same."""
    return embed_words(x, ids, [at.padding_idx + 5] * len(ids), at)


ORACLES = [
    Oracle(
        "complex",
        embed=embed,
        defaults={"frequencies": "word_and_dimension", "learned": True, "first_position": 1},
        cases=[
            ({}, "encoder decoder"),
            ({"frequencies": "word"}, "encoder decoder"),
            ({"frequencies": "dimension"}, "encoder"),
            ({"frequencies": "dimension", "learned": False}, "encoder"),
            ({"learned": False, "first_position": 0}, "decoder"),
        ],
        real=True,
        atol=1e-4,  # fixed frequencies are float32, and positions reach 300
    )
]

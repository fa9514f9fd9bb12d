"""The source vectors from which the bridge of PNAT computes decoder inputs.

These vectors are encoder outputs, embeddings with sinusoids, or embeddings only.
"""

import math

import pytest
import torch

from tests.pnat.models import PAD, arguments, batch, build, sentences


def wave(position: int, width: int) -> list[float]:
    """Return sinusoids in the interleaved layout, by the equation of Vaswani et al. (2017)."""
    angles = [position / 10000 ** (2 * (channel // 2) / width) for channel in range(width)]
    return [math.cos(angle) if channel % 2 else math.sin(angle) for channel, angle in enumerate(angles)]


@pytest.mark.parametrize("states", ["embedding", "words"])
def test_embeddings_have_the_authors_sinusoids_and_words_have_none(states):
    model = build(bridge_states=states, encoder_position="none")
    source, target = batch(sentences(6, 3)), batch(sentences(6, 3, seed=2))
    found = model.decoder.inputs(model.encoder(source), target.ne(PAD))
    width = found.size(2)
    for row, tokens in enumerate(source):
        # Source and target have the same length, so each input copies one source symbol.
        for position in range(int(tokens.ne(PAD).sum())):
            expected = model.encoder.embed_tokens.weight[tokens[position]] * width**0.5
            if states == "embedding":
                expected = expected + torch.tensor(wave(position, width))
            torch.testing.assert_close(found[row, position], expected, rtol=1e-5, atol=1e-5)


def test_encoder_outputs_are_the_default():
    assert arguments().bridge_states == "encoder"

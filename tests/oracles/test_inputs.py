"""Methods that act on the embeddings or before a layer, called through their hooks."""

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Positions
from fairseq_posenc.testing import reference
from fairseq_posenc.testing.oracle import build, compare_before_layer, compare_embed, compare_embed_at_positions

from .cases import WIDTH, assert_close, cases, place_of

LAYERS = 3


def by_id(oracle) -> bool:
    """Return whether a method at the input depends only on position ids.

    The GRU of rnn and rr reads the columns from left to right. In a model, the encoder first moves left padding to the right.
    """
    return oracle.embed is not None and oracle.name not in ("rnn", "rr")


@pytest.mark.parametrize("padding_idx", [0, 1, 3])
@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.embed))
def test_right_padding(oracle, options, site, padding_idx):
    compare_embed(oracle, options, site, "right", padding_idx)


@pytest.mark.parametrize("oracle, options, site", cases(by_id))
def test_left_padding(oracle, options, site):
    compare_embed(oracle, options, site, "left")


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle.before_layer))
def test_before_layer(oracle, options, site):
    compare_before_layer(oracle, options, site)


@pytest.mark.parametrize("oracle, options, site", cases(by_id))
def test_embed_at_given_positions(oracle, options, site):
    compare_embed_at_positions(oracle, options, site)


PLAIN = reference.Oracle("", [])
INPUTS = ("query_input", "key_input", "value_input")


@pytest.mark.parametrize(
    "oracle, options, site", cases(lambda o: any(getattr(o, name) is not getattr(PLAIN, name) for name in INPUTS))
)
def test_inputs_of_projections_in_every_layer(oracle, options, site):
    method = build(oracle, options, site)
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    far = (oracle.reach or 301) - 1
    for at in (Positions.counted(3, 6), Positions(torch.tensor([[0, 2, 5, 9, far, 1], [3, 1, 4, 1, 5, 9]]))):
        ids = np.broadcast_to(at.ids.numpy(), (2, 6))
        ctx = AttentionContext(at, at, causal=site == "decoder", cross=site == "cross").prepared_by(method)
        for layer in range(LAYERS):
            place = place_of(method, oracle, options, site, layer=layer)
            for name, which in zip(INPUTS, ("query", "key", "value")):
                changed = which in method.projections_of("project_input")
                out = method.project_input(which, x, at, ctx.replace(layer=layer)) if changed else x
                rows = zip(x.numpy(), ids)
                wanted = [[getattr(oracle, name)(*pair, place) for pair in zip(*row)] for row in rows]
                assert_close(out, np.array(wanted), oracle.atol)

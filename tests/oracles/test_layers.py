"""What layers share and what each has of its own, through the hooks of a method that serves three layers."""

import dataclasses

import numpy as np
import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.contract import AttentionContext, Dims, Positions

from .cases import HEADS, MAX_POSITIONS, WIDTH, assert_close, cases, place_of, randomise, spec_of

LAYERS, T, S = 3, 4, 5


@pytest.mark.parametrize(
    "oracle, options, site", cases(lambda oracle: not (oracle.random or oracle.embed or oracle.before_layer))
)
def test_layers(oracle, options, site):
    torch.manual_seed(2)
    method = registry.build(spec_of(oracle.name, options), Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS), site)[0]
    randomise(method)
    keys = T if oracle.head else S
    ctx = AttentionContext(site, Positions.counted(0, T), Positions.counted(0, keys), causal=site == "decoder")
    q, k, v = (torch.randn(2, HEADS, n, WIDTH // HEADS).double() for n in (T, keys, keys))
    for layer in range(LAYERS):
        at = dataclasses.replace(place_of(method, oracle, options, site), layer=layer)
        if oracle.head is not None:
            assert_close(method.attend(q, k, v, ctx.at(layer=layer)), heads(oracle, at, v), oracle.atol)
            continue
        # Inputs of queries and keys are the same in every layer: test_attention.py has seen them.
        assert_close(hooked_scores(method, q, k, ctx.at(layer=layer)), scores(oracle, at, q, k), oracle.atol)
        if "content_values" in method.hooks:
            probs = torch.rand(2, HEADS, T, keys).double()
            assert_close(method.content_values(probs, v, ctx.at(layer=layer)), added(oracle, at, probs, v), oracle.atol)


def hooked_scores(method, q, k, ctx):
    """The logits that the contract defines from the hooks."""
    used = method.hooks
    if "rotate_query" in used:
        q, k = method.rotate_query(q, ctx.queries, ctx), method.rotate_key(k, ctx.keys, ctx)
    out = q @ k.transpose(2, 3) * method.scale(WIDTH // HEADS)
    if "rescale" in used:
        out = method.rescale(out, q, k, ctx)
    if "content_scores" in used:
        out = out + method.content_scores(q, k, ctx)
    return out + method.bias(ctx) if "bias" in used else out


def scores(oracle, at, q, k):
    out = np.zeros((*q.shape[:3], k.size(2)))
    for b, head, t, s in np.ndindex(out.shape):
        here = dataclasses.replace(at, head=head)
        out[b, head, t, s] = oracle.score(q[b, head, t].numpy(), k[b, head, s].numpy(), t, s, here)
    return out


def added(oracle, at, probs, v):
    """What positions add to the values that a query reads."""
    out = np.zeros((*probs.shape[:3], v.size(3)))
    for b, head, t, s in np.ndindex(probs.shape):
        here = dataclasses.replace(at, head=head)
        one = v[b, head, s].numpy()
        out[b, head, t] += probs[b, head, t, s].item() * (oracle.value(one, t, s, here) - one)
    return out


def heads(oracle, at, v):
    out = np.zeros(v.shape)
    for b, head, t in np.ndindex(v.shape[:3]):
        here = dataclasses.replace(at, head=head)
        seen = [s for s in range(v.size(2)) if oracle.allowed(t, s, here)]
        out[b, head, t] = oracle.head(list(v[b, head].numpy()), t, seen, here)
    return out

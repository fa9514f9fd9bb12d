"""Parameters that layers share, and parameters of each layer. The tests call the hooks of methods with three layers."""

import dataclasses

import numpy as np
import pytest
import torch

from fairseq_posenc.core import AttentionContext, Dims, Positions
from fairseq_posenc.core.method import default_scale
from fairseq_posenc.data.side.examples import RELATIONS
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import reference

from .cases import HEADS, MAX_POSITIONS, WIDTH, assert_close, cases, place_of, randomise, sentences_of, spec_of, with_side

LAYERS, T, S = 3, 4, 5
IN_SCORES = {"rotate", "rescale", "content_scores", "bias", "scale"}


def in_hooks(oracle) -> bool:
    """Return whether the hooks of a method can be compared with the oracle, without an attention module."""
    return not (oracle.random or oracle.before_layer or oracle.output)


@pytest.mark.parametrize("oracle, options, site", cases(in_hooks))
def test_layers(oracle, options, site):
    torch.manual_seed(2)
    method = parsing.build(
        spec_of(oracle.name, options),
        Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS, relations=RELATIONS).at(site),
        site,
    )[0]
    randomise(method)
    keys = T if site != "cross" else S
    inputs = [torch.randn(2, n, WIDTH).double() for n in (T, keys, keys)]
    projections = {name: (torch.randn(WIDTH, WIDTH).double() / WIDTH**0.5, torch.randn(WIDTH).double()) for name in "qkv"}
    ctx = AttentionContext(
        Positions.counted(0, T), Positions.counted(0, keys), causal=site == "decoder", cross=site == "cross",
        inputs=tuple(inputs[:2]),
        project=lambda which, x: by_heads(torch.nn.functional.linear(x, *projections[which[0]])),
    )  # fmt: skip
    sentences = sentences_of(oracle, [T, T])
    ctx = with_side(ctx, method, oracle, sentences)
    q, k, v = (by_heads(torch.nn.functional.linear(x, *projections[name])) for name, x in zip("qkv", inputs))
    for layer in range(LAYERS):
        at = dataclasses.replace(
            place_of(method, oracle, options, site),
            layer=layer,
            sentences=sentences,
            query_ids=range(T),
            key_ids=range(keys),
            real=range(keys),
            projections={name: tuple(x.numpy() for x in pair) for name, pair in projections.items()},
        )
        # The scale is a number, or a tensor of factors for the queries. These factors multiply the usual scale 1/sqrt(d_h).
        scale = method.scale(ctx.replace(layer=layer))
        factors, constant = (scale, default_scale(WIDTH // HEADS)) if isinstance(scale, torch.Tensor) else (1.0, scale)
        here = ctx.replace(layer=layer, scale=constant)
        if oracle.head is not None:
            assert_close(method.attend(q, k, v, here), heads(oracle, at, v), oracle.atol)
            continue
        # Other hooks change inputs or masks. test_attention.py compares the attention of methods with these hooks.
        if method.hooks & IN_SCORES:
            expected = scores(oracle, at, q, k, inputs)
            assert_close(hooked_scores(method, q * factors, k, here.replace(causal=False)), expected, oracle.atol)
            # where the causal mask hides a key, results of hooks are undefined
            expected = np.where(hidden_from(site, keys), np.nan, expected)
            assert_close(hooked_scores(method, q * factors, k, here), expected, oracle.atol)
        if "content_values" in method.hooks:
            probs = weights(method, q * factors, k, here, hidden_from(site, keys))
            assert_close(method.content_values(probs, v, here), added(oracle, at, probs, v, inputs), oracle.atol)


def hidden_from(site: str, keys: int) -> np.ndarray:
    """Return whether the causal mask hides a key from a query: [T, keys]."""
    return np.triu(np.full((T, keys), site == "decoder"), 1)


def by_heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(-3, -2)


def hooked_scores(method, q, k, ctx):
    """Compute the logits with the hooks `rotate`, `rescale`, `content_scores` and `bias`."""
    used = method.hooks
    if "rotate" in used:
        q, k = method.rotate("query", q, ctx.queries, ctx), method.rotate("key", k, ctx.keys, ctx)
    out = q @ k.transpose(2, 3) * ctx.scale
    if "rescale" in used:
        out = method.rescale(out, q, k, ctx)
    if "content_scores" in used:
        out = out + method.content_scores(q, k, ctx)
    bias = method.bias(ctx) if "bias" in used else None
    return out if bias is None else out + bias


def weights(method, q, k, ctx, hidden):
    """Return the attention weights of the logits: [B, H, T, S]."""
    logits = hooked_scores(method, q, k, ctx).masked_fill(torch.from_numpy(hidden), -torch.inf)
    if "mask" in method.hooks:
        logits = logits.masked_fill(~method.mask(ctx), -torch.inf)
    return logits.softmax(-1)


def seen_by(column: int, at, keys: int) -> list:
    return list(range(column + 1 if at.causal else keys))


def scores(oracle, at, q, k, inputs):
    """Return the scores of the oracle. If the oracle computes whole rows, scores of keys that the causal mask hides are nan."""
    out = np.full((*q.shape[:3], k.size(2)), np.nan)
    for b, head, t in np.ndindex(q.shape[:3]):
        here = dataclasses.replace(at.of_sentence(b), head=head, inputs=tuple(x[b].numpy() for x in inputs))
        seen = seen_by(t, at, k.size(2)) if oracle.row is not None else list(range(k.size(2)))
        out[b, head, t, seen] = reference.logits(oracle, list(q[b, head].numpy()), list(k[b, head].numpy()), t, seen, here)
    return out


def added(oracle, at, probs, v, inputs):
    """Return the vectors that the method adds to the weighted sums of the values, for every query."""
    out = np.zeros((*probs.shape[:3], v.size(3)))
    for b, head, t in np.ndindex(probs.shape[:3]):
        here = dataclasses.replace(at.of_sentence(b), head=head, inputs=tuple(x[b].numpy() for x in inputs))
        values = list(v[b, head].numpy())
        for s, one in enumerate(values):
            out[b, head, t] += probs[b, head, t, s].item() * (oracle.value(one, t, s, here) - one)
        if oracle.plus is not None:
            seen = [s for s in seen_by(t, at, len(values)) if oracle.allowed(t, s, here)]
            out[b, head, t] += oracle.plus(values, t, seen, here)
    return out


def heads(oracle, at, v):
    out = np.zeros(v.shape if at.site != "cross" else (*v.shape[:2], T, v.size(3)))
    for b, head, t in np.ndindex(out.shape[:3]):
        here = dataclasses.replace(at.of_sentence(b), head=head)
        seen = [s for s in seen_by(t, at, v.size(2)) if oracle.allowed(t, s, here)]
        out[b, head, t] = oracle.head(list(v[b, head].numpy()), t, seen, here)
    return out

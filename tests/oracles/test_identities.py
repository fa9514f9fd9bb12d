"""Exact values of the newer methods of attention, and identities that make one method of another."""

import pytest
import torch

from .test_values import attention, close, fill

N = 12  # the positions that tables of `attention` hold
EVERYWHERE = pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])


def pair(ours, theirs, site="encoder", **sizes):
    """Two attentions that differ in their positions alone."""
    ours, theirs = attention(ours, site, **sizes), attention(theirs, site, seed=1, **sizes)
    for name, projection in theirs.named_children():
        if name.endswith("_proj") and getattr(ours, name) is not None:
            getattr(ours, name).load_state_dict(projection.state_dict())
    return ours, theirs


def equal(ours, theirs, atol=1e-9):
    """Outputs of the full length, by the fused kernel and step by step."""
    torch.manual_seed(2)
    x, source = (torch.randn(N, 2, theirs.out_proj.in_features).double() for _ in range(2))
    y = source if theirs.placement.site == "cross" else x
    for need_weights in (True, False):
        outputs = [module(x, y, y, need_weights=need_weights)[0].detach() for module in (ours, theirs)]
        close(*outputs, atol=atol)


def constant(projection, vector):
    """Makes a projection give every word this vector, or one with this vector in every head."""
    fill(projection.weight, 0.0)
    fill(projection.bias, torch.as_tensor(vector).repeat(projection.out_features // len(vector)))


def along(attn, deltas):
    """[H, deltas]: logits of words that are all alike, with the query far to the right of 0."""
    x = torch.zeros(len(deltas), 1, attn.q_proj.in_features, dtype=torch.double)
    return attn.scores(x[:1], x, torch.tensor([1000]), torch.tensor(deltas) + 1000)[0, :, 0].detach().numpy()


def square(attn, n, keys=None):
    """[H, T, S]: the same at counted positions."""
    x = torch.zeros(max(n, keys or n), 1, attn.q_proj.in_features, dtype=torch.double)
    return attn.scores(x[:n], x[: keys or n])[0].detach().numpy()


def fill_ending(attn, ending, value):
    for name, parameter in attn.position.named_parameters():
        if name.endswith(ending):
            fill(parameter, value)


def of_distance(table, n=N):
    """[..., 2n - 1, *] -> [..., n, n, *]: what a table of distances says of every query and key."""
    rows = torch.arange(n)[None] - torch.arange(n)[:, None] + n - 1
    return rows, table[:, :, rows]


# -- what is nothing -----------------------------------------------------------------------------------------------------

# What must stand in which parameters for plain attention to remain; all others are random. A constant of all keys, such as the
# last bias of a network, is nothing to the softmax.
NEUTRAL = [
    ("diet_rel", {"table": 0}),
    ("diet_abs", {"query_positions": 0}),
    ("diet_abs", {"key_positions": 0}),
    ("dufter_abs", {"table": 0}),
    ("dufter_rel", {"table": 0}),
    ("shaw_abs", {"table": 0}),
    ("xl", {"projection": 0, "content_bias": 0}),
    ("huang1", {"factor": 1}),
    ("huang3", {"gate": 1}),
    ("huang4", {"table": 0}),
    ("chang:key_term=true", {"table": 0}),
    ("window:width=22", {}),  # the narrowest in which 12 words see each other
    ("synthesizer_random:mix=plus", {"table": 0}),
    ("synthesizer_factorised:mix=plus", {"key_factor": 0}),
    ("synthesizer_dense:mix=plus", {"out_weight": 0}),
    ("synthesizer_random:mix=plus_alpha", {"alpha": -100}),
    ("synthesizer_dense:mix=plus_alpha,form=minus", {"alpha": -100}),
    ("fire", {"mlp.2.weight": 0}),
    ("dynamic_bias", {"layers.2.weight": 0}),
    ("cope", {"table": 0}),
    ("cable", {"weight": 0, "offset": -100}),
    ("forgetting", {"weight": 0, "offset": 100}),
]

"""Attentions with random parameters beside the loops of their oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from .. import spec as parsing
from ..attention.positional import PositionalAttention
from ..attention.site_positions import SitePositions
from ..core import AttentionContext, Dims, Sentence, SideInputs
from ..core.side import declared_by
from ..data.side import examples
from ..registry import card
from . import reference
from .reference import Oracle, Place

WIDTH, HEADS, MAX_POSITIONS = 16, 4, 12
#: words of the sentences of a batch, and sentences of one where positions are given
LENGTHS, BATCH = [5, 3, 1], 2


def spec_of(name: str, options: dict) -> str:
    texts = {True: "true", False: "false"}
    pairs = [f"{key}={texts[value] if isinstance(value, bool) else value}" for key, value in options.items()]
    return name + (":" + ",".join(pairs) if pairs else "")


def randomise(module: torch.nn.Module) -> torch.nn.Module:
    """float64, evaluation, and no parameter left at an initial value that could hide a mistake."""
    module.double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn_like(parameter))
            if name.split(".")[-2:-1] in (["q_proj"], ["k_proj"], ["v_proj"], ["out_proj"], ["query_proj"], ["key_proj"]):
                parameter.div_(WIDTH**0.5)  # a softmax that is saturated would hide mistakes
    return module


def attention_of(oracle: Oracle, options: dict, site: str, seed: int = 0):
    """-> an attention with random parameters, its place and its projections in numpy.

    `build_attention` refuses methods that act outside of attention too; here their part in attention is compared.
    """
    torch.manual_seed(seed)
    dims = Dims(WIDTH, HEADS, 1, MAX_POSITIONS, MAX_POSITIONS, relations=examples.RELATIONS).at(site)
    methods = parsing.build(spec_of(oracle.name, options), dims, site)
    attn = randomise(PositionalAttention(SitePositions(methods, dims, site), dropout=0.0))
    return attn, place_of(attn.position, oracle, options, site), projections_of(attn)


def place_of(method: torch.nn.Module, oracle: Oracle, options: dict, site: str, **changes) -> Place:
    parameters = {name: parameter.detach().numpy() for name, parameter in method.named_parameters()}
    return Place(site, HEADS, {**oracle.defaults, **options}, parameters, **{"max_positions": MAX_POSITIONS, **changes})


def projections_of(attn: torch.nn.Module) -> dict:
    """{"q": (weight, bias), ...} of those that the attention has."""
    found = {name: getattr(attn, f"{name}_proj", None) for name in ("q", "k", "v", "out")}
    return {name: (x.weight.detach().numpy(), x.bias.detach().numpy()) for name, x in found.items() if x is not None}


def reads_sentences(oracle: Oracle) -> bool:
    """Whether the method reads the structure of a sentence."""
    return any(side.files for side in card(oracle.name).side_inputs)


def sentences_of(oracle: Oracle, lengths: list) -> list[Sentence]:
    """A random tree for every sentence, where the method reads any."""
    return [examples.random_sentence(range(length)) for length in lengths] if reads_sentences(oracle) else []


def side_inputs_of(methods, sentences: list, length: int, padding: str = "right") -> dict[str, torch.Tensor]:
    """What the methods make of these sentences."""
    return examples.side_inputs(methods if sentences else [], sentences, length, padding == "left")


def with_side(ctx: AttentionContext, method, sentences: list, padding: str = "right") -> AttentionContext:
    """The context with the side inputs that a method reads."""
    given = side_inputs_of([method], sentences, ctx.keys.ids.size(1), padding)
    return ctx.replace(side=SideInputs(given, declared_by([method.card])))


def padding_mask(lengths: list, side: str) -> torch.Tensor:
    """bool [B, S], True at padding."""
    longest = max(lengths)
    rows = [[True] * (longest - n) + [False] * n if side == "left" else [False] * n + [True] * (longest - n) for n in lengths]
    return torch.tensor(rows)


def assert_close(ours: torch.Tensor, reference: np.ndarray, atol: float) -> None:
    """Equal wherever the reference says anything."""
    known = ~np.isnan(reference)
    assert known.any()
    np.testing.assert_allclose(ours.detach().numpy()[known], reference[known], rtol=0, atol=atol)


def compare_output(oracle: Oracle, options: dict, site: str, padding: str) -> None:
    """Outputs and weights of a batch padded on one side, or of a sentence alone where padding is "none"."""
    attn, place, projections = attention_of(oracle, options, site)
    lengths = LENGTHS if padding != "none" else LENGTHS[:1]
    mask = padding_mask(lengths, padding)
    key = torch.randn(len(lengths), max(lengths), WIDTH, dtype=torch.double)
    query, value = (torch.randn(len(lengths), 4, WIDTH).double(), torch.randn_like(key)) if site == "cross" else (key, key)
    sentences = sentences_of(oracle, lengths)
    place = dataclasses.replace(place, sentences=sentences)
    side = side_inputs_of(attn.positions.methods, sentences, max(lengths), padding)
    expected, weights = reference.attention(oracle, place, projections, *(x.numpy() for x in (query, key, value, mask)))
    for need_weights in (True, False):
        given = None if padding == "none" else mask
        inputs = (x.transpose(0, 1) for x in (query, key, value))
        out, ours = attn(*inputs, key_padding_mask=given, need_weights=need_weights, side_inputs=side)
        assert_close(out.transpose(0, 1), expected, oracle.atol)
        if need_weights and oracle.head is None and oracle.output is None:
            assert_close(ours, weights, oracle.atol)


def compare_scores(oracle: Oracle, options: dict, site: str, ids: Sequence[np.ndarray], given: Iterable[torch.Tensor]) -> None:
    """Bare scores of queries and keys at these positions; `given` are those that are not counted."""
    attn, place, projections = attention_of(oracle, options, site, seed=1)
    query, key = (torch.randn(x.shape[-1], BATCH, WIDTH, dtype=torch.double) for x in ids)
    sentences = sentences_of(oracle, [len(key)] * BATCH)
    place = dataclasses.replace(place, sentences=sentences)
    expected = reference.scores(
        oracle,
        place,
        projections,
        *(x.transpose(0, 1).numpy() for x in (query, key)),
        *(np.broadcast_to(x, (BATCH, x.shape[-1])) for x in ids),
    )
    side = side_inputs_of(attn.positions.methods, sentences, len(key))
    assert_close(attn.scores(query, key, *given, side_inputs=side), expected, oracle.atol)

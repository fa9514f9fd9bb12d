"""Compare methods with their oracles (`reference.py`). All parameters have random values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..attention.positional import PositionalAttention
from ..attention.site_positions import SitePositions
from ..core import AttentionContext, Dims, Positions, Sentence, SideInputs
from ..core.side import declared_by
from ..data.side import examples
from ..registry import card
from ..registry import spec as parsing
from . import reference
from .reference import Oracle, Place

WIDTH, HEADS, MAX_POSITIONS = 16, 4, 12
#: LENGTHS: number of tokens of each sentence in a batch of `compare_output`. BATCH: number of sentences in `compare_scores`
LENGTHS, BATCH = [5, 3, 1], 2


def spec_of(name: str, options: dict) -> str:
    texts = {True: "true", False: "false"}
    pairs = [f"{key}={texts[value] if isinstance(value, bool) else value}" for key, value in options.items()]
    return name + (":" + ",".join(pairs) if pairs else "")


def randomise(module: torch.nn.Module) -> torch.nn.Module:
    """Convert the module to float64 and to evaluation mode, and replace all parameters by random values.

    Initial values such as 0 or 1 can hide errors.
    """
    module.double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn_like(parameter))
            if name.split(".")[-2:-1] in (["q_proj"], ["k_proj"], ["v_proj"], ["out_proj"], ["query_proj"], ["key_proj"]):
                parameter.div_(WIDTH**0.5)  # with larger values, a saturated softmax could hide errors
    return module


def attention_of(oracle: Oracle, options: dict, site: str, seed: int = 0):
    """Return an attention module with random parameters, and the inputs of the oracle: a Place, and the projections.

    `build_attention` is not used, because it raises an error for methods that also act outside the attention.
    """
    torch.manual_seed(seed)
    dims = Dims(WIDTH, HEADS, 1, MAX_POSITIONS, MAX_POSITIONS, relations=examples.RELATIONS).at(site)
    methods = parsing.build(spec_of(oracle.name, options), dims, site)
    attn = randomise(PositionalAttention(SitePositions(methods, dims, site), dropout=0.0))
    return attn, place_of(attn.position, oracle, options, site), projections_of(attn)


def place_of(method: torch.nn.Module, oracle: Oracle, options: dict, site: str, **changes) -> Place:
    parameters = {name: parameter.detach().numpy() for name, parameter in method.named_parameters()}
    return Place(
        site,
        HEADS,
        {**oracle.defaults, **options},
        parameters,
        **{"max_positions": MAX_POSITIONS, "layers": method.dims.num_layers, **changes},
    )


def projections_of(attn: torch.nn.Module) -> dict:
    """Return the projections of an attention module as {"q": (weight, bias), ...}."""
    found = {name: getattr(attn, f"{name}_proj", None) for name in ("q", "k", "v", "out")}
    return {name: (x.weight.detach().numpy(), x.bias.detach().numpy()) for name, x in found.items() if x is not None}


def reads_sentences(oracle: Oracle) -> bool:
    """Return whether the method reads trees, graphs or reorderings from side files."""
    return any(side.files for side in card(oracle.name).side_inputs)


def sentences_of(oracle: Oracle, lengths: list) -> list[Sentence]:
    """Return one random `Sentence` per length, or [] if the method does not read trees, graphs or reorderings."""
    return [examples.random_sentence(range(length)) for length in lengths] if reads_sentences(oracle) else []


def side_inputs_of(methods, sentences: list, length: int, padding: str = "right") -> dict[str, torch.Tensor]:
    """Return the side inputs of these sentences, or of one random sentence if `sentences` is empty."""
    return examples.side_inputs(methods, sentences or [examples.random_sentence(range(length))], length, padding == "left")


def with_side(ctx: AttentionContext, method, oracle: Oracle, sentences: list, padding="right", rows=2) -> AttentionContext:
    """Return the context with side inputs and with the result of `prepare`.

    The side inputs are computed from the sentences. The side inputs that `oracle.side` returns are added. They replace side
    inputs with the same names.
    """
    given = side_inputs_of([method], sentences, ctx.keys.ids.size(1), padding)
    for name in oracle.side(0):
        given[name] = torch.tensor([oracle.side(row)[name] for row in range(rows)])
    return ctx.replace(side=SideInputs(given, declared_by([method.card]))).prepared_by(method)


def padding_mask(lengths: list, side: str) -> torch.Tensor:
    """Return bool [B, S], True at padding."""
    mask = torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1)
    return mask.flip(1) if side == "left" else mask


def assert_close(ours: torch.Tensor, reference: np.ndarray, atol: float) -> None:
    """Compare all elements at which the reference is not nan."""
    known = ~np.isnan(reference)
    assert known.any()
    np.testing.assert_allclose(ours.detach().numpy()[known], reference[known], rtol=0, atol=atol)


def compare_output(oracle: Oracle, options: dict, site: str, padding: str) -> None:
    """Compare outputs and weights of a batch with padding on one side, or of a single sentence if `padding` is "none"."""
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
    """Compare the scores of the attention module with the scores of the oracle.

    Queries and keys have the positions `ids`. `given` contains the positions that are passed to the module, if any.
    """
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


# -- hooks that act outside the attention: embed and before_layer ---------------------------------------------------------

_LAYERS, _INPUT_LENGTHS = 3, [6, 4, 1]
#: the words of the dictionary. The index of the first word is the index of the padding symbol plus 1
WORDS = ["</s>", "a", "bc@@", "def", "ghij@@"]


def counts_words(oracle) -> bool:
    """Return whether the method reads side inputs.

    If so, the test sentences for the method repeat the words of `WORDS`. Otherwise, the test sentences repeat one word.
    """
    return bool(card(oracle.name).side_inputs)


def build(oracle, options, site, padding_idx=1):
    torch.manual_seed(3)
    counted = {word: padding_idx + 1 + number for number, word in enumerate(WORDS)}
    words = counted if counts_words(oracle) else {"</s>": 2, "a": padding_idx + 5, "b": padding_idx + 6, "<sep>": padding_idx + 7}
    dims = Dims(WIDTH, HEADS, _LAYERS, MAX_POSITIONS, MAX_POSITIONS, padding_idx, 20, words, relations=examples.RELATIONS)
    return randomise(parsing.build(spec_of(oracle.name, options), dims.at(site), site)[0])


def tokens_of(oracle, padding: torch.Tensor, padding_idx: int) -> torch.Tensor:
    if not counts_words(oracle):
        return torch.full(padding.shape, padding_idx + 5).masked_fill(padding, padding_idx)
    ids = (~padding).cumsum(1) - 1  # position of each token, without padding
    return (padding_idx + 1 + ids % len(WORDS)).masked_fill(padding, padding_idx)


def embedded(method, x, tokens, ctx):
    """Return the result of the hooks `positions` and `embed`, in evaluation mode."""
    ids = method.positions(ctx.queries.ids, ctx)
    at = ctx.queries if ids is ctx.queries.ids else Positions(ids)
    return method.embed(x, tokens, ctx.replace(queries=at, keys=at)) if "embed" in method.hooks else x


def expected(oracle, x, ids, padding, at):
    """Return the oracle's result of `embed` for each sentence, and nan at padding."""
    out = np.full(x.shape, np.nan)
    for b in range(len(x)):
        real = ~padding[b]
        words = [WORDS[column % len(WORDS)] for column in range(real.sum())]
        place = dataclasses.replace(at.of_sentence(b), words=words, side=oracle.side(b))
        out[b, real] = oracle.embed(x[b, real], [oracle.position(t, place) for t in ids[b, real]], place)
    return out


def compare_embed(oracle, options, site, padding, padding_idx=1):
    method, mask = build(oracle, options, site, padding_idx=padding_idx), padding_mask(_INPUT_LENGTHS, padding)
    ids = torch.tensor([reference.count(row) for row in mask])
    x = torch.randn(*mask.shape, WIDTH, dtype=torch.double)
    at = Positions(ids, 0) if padding == "right" else Positions(ids)
    sentences = sentences_of(oracle, _INPUT_LENGTHS)
    ctx = with_side(
        AttentionContext(at, at, causal=site == "decoder", key_padding=mask), method, oracle, sentences, padding, len(mask)
    )
    out = embedded(method, x, tokens_of(oracle, mask, padding_idx), ctx.prepared_by(method))
    place = place_of(method, oracle, options, site, padding_idx=padding_idx, sentences=sentences)
    assert_close(out, expected(oracle, x.numpy(), ids.numpy(), mask.numpy(), place), oracle.atol)


def compare_embed_at_positions(oracle: Oracle, options: dict, site: str) -> None:
    """Compare the results of `embed` at positions that differ from the columns, and between the sentences of a batch."""
    method, tokens = build(oracle, options, site), tokens_of(oracle, torch.zeros(2, 6, dtype=torch.bool), 1)
    x, last = torch.randn(2, 6, WIDTH, dtype=torch.double), 300 if method.limit is None else method.limit - 1
    far = last if oracle.reach is None else oracle.reach - 1
    for ids in (torch.tensor([[0, 2, 5, 9, far, 1], [3, 1, 4, 1, 5, 9]]), torch.tensor([[7, 8, 9, 10, 11, 3]])):
        at = Positions(ids)
        sentences = sentences_of(oracle, [6, 6])
        ctx = with_side(AttentionContext(at, at, causal=site == "decoder"), method, oracle, sentences)
        out = embedded(method, x, tokens, ctx.prepared_by(method))
        nowhere, rows = np.zeros((2, 6), bool), np.broadcast_to(ids.numpy(), (2, 6))
        place = place_of(method, oracle, options, site, sentences=sentences)
        assert_close(out, expected(oracle, x.numpy(), rows, nowhere, place), oracle.atol)


def compare_before_layer(oracle: Oracle, options: dict, site: str) -> None:
    """Compare the results of `before_layer` for every layer.

    The first comparison uses consecutive positions from 0 (`Positions.counted`). The second comparison uses other positions,
    which differ between the two sentences.
    """
    method = build(oracle, options, site)
    x = torch.randn(2, 6, WIDTH, dtype=torch.double)
    for at in (Positions.counted(0, 6), Positions(torch.tensor([[0, 2, 5, 9, 300, 1], [3, 1, 4, 1, 5, 9]]))):
        ids = np.broadcast_to(at.ids.numpy(), (2, 6))
        for layer in range(_LAYERS):
            out = method.before_layer(x, AttentionContext(at, at, layer=layer, causal=site == "decoder"))
            place = place_of(method, oracle, options, site, layer=layer)
            wanted = np.array([oracle.before_layer(rows, at_ids, place) for rows, at_ids in zip(x.numpy(), ids)])
            assert_close(out, wanted, oracle.atol)


def compare(oracle: Oracle, options: dict, site: str) -> None:
    """Compare one spec at one site with its oracle."""
    if oracle.embed is not None:
        compare_embed(oracle, options, site, "right")
        compare_embed_at_positions(oracle, options, site)
    if oracle.before_layer is not None:
        compare_before_layer(oracle, options, site)
    if not oracle.random:
        for padding in ("none", "left", "right"):
            compare_output(oracle, options, site, padding)
    if not (oracle.random or oracle.head or oracle.output):
        whole = (oracle.row is not None or reads_sentences(oracle)) and site != "cross"
        compare_scores(oracle, options, site, (np.arange(4), np.arange(4 if whole else 6)), ())

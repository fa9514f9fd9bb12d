"""Compute the effect of positions on the attention of one site. All positions have the same content.

The results are matrices with one number for each query and key.

Methods with side inputs receive the side inputs of a random sentence. For the same number of positions, these side inputs are
equal in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..attention.multihead import Attention
from ..attention.site_positions import SitePositions
from ..core import AttentionContext, Dims, Positions, SideInputs
from ..core.hooks import IN_MATRIX, Kind, Phase, hooks_where
from ..data.side import examples

COSINE = "cosine of position vectors"
SCORE = "score"
CHANGE = "change of score"
WEIGHT = "weight"

#: hooks that change the inputs of the query and key projections
_VECTORS = hooks_where(lambda hook: Phase.INPUT <= hook.phase <= Phase.ATTENTION_INPUT)
#: hooks that change these inputs in one layer
_VECTORS_OF_LAYER = hooks_where(lambda hook: Phase.LAYER <= hook.phase <= Phase.ATTENTION_INPUT)
#: hooks that change queries and keys. With these hooks, the effect of positions is part of the product of query and key
_ROTATIONS = hooks_where(lambda hook: hook.phase == Phase.PROJECTED)
#: hooks that change the scores, or add to them
_CHANGES = hooks_where(lambda hook: hook.phase == Phase.SCORES and hook.kind in (Kind.CHAIN, Kind.SUM))
#: number of tokens per sentence of a document, including the separator
_SEGMENT = 8
#: for methods with noise: number of draws whose mean is computed, and seed of these draws
_DRAWS, _SEED = 32, 1


@dataclass(frozen=True)
class Matrix:
    """One number for each query and key: [H, T, S], or [1, T, S] if heads are equal. nan: the query cannot attend to the key.

    of_layer: False if the numbers are equal for all layers, because the methods change only the input of the first layer.
    """

    values: Tensor
    quantity: str
    draws: int = 1
    of_layer: bool = True


@dataclass(frozen=True)
class Content:
    """The content of the tokens. All positions have the same content.

    hidden: hidden states of queries and keys, [C] each.
    direction: one vector per head, [H, D]. All projected queries and keys of the head have the direction of this vector.
    project: function that methods call to project vectors, such as vectors of positions.
    """

    hidden: tuple[Tensor, Tensor]
    direction: Tensor
    project: Callable[[str, Tensor], Tensor]


def plain_content(dims: Dims) -> Content:
    """Return a `Content` whose hidden states and directions contain only ones. Its projection is the identity."""
    ones = torch.ones(dims.embed_dim)
    heads = dims.num_heads
    return Content((ones, ones), ones.view(heads, -1), lambda _, x: x.unflatten(-1, (heads, -1)).transpose(-3, -2))


def matrices(positions: SitePositions, length: int, layer: int = 0, content: Content | None = None) -> list[Matrix]:
    """Return the matrices of one layer: the similarity of position vectors, the scores, or both.

    A method with the hook `attend` has attention weights instead of scores.

    For methods with noise, return the mean over many draws, with one fixed seed. Raise PositionError if a method does not support
    this number of positions.
    """
    content = plain_content(positions.dims) if content is None else content
    was_training = positions.training
    positions.eval()
    random = [method for method in positions.methods if method.draws]
    for method in random:
        method.train()  # in evaluation, every draw would have the same noise
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            draws = [_draw(positions, length, layer, content) for _ in range(_DRAWS if random else 1)]
    finally:
        positions.train(was_training)
    return [replace(same[0], values=torch.stack([one.values for one in same]).mean(0), draws=len(same)) for same in zip(*draws)]


def _draw(positions: SitePositions, length: int, layer: int, content: Content) -> list[Matrix]:
    ctx = _context(positions, length, layer, content)
    vectors = _cosines(positions, ctx) if _uses(positions, _VECTORS, layer) else None
    found = [] if vectors is None else [Matrix(vectors, COSINE, of_layer=_uses(positions, _VECTORS_OF_LAYER, layer))]
    if positions.uses("attend", layer):
        found.append(Matrix(_weights(positions, ctx, content), WEIGHT))
    elif vectors is None or _uses(positions, IN_MATRIX, layer):
        found.append(_scores(positions, ctx, content))
    return found


def _uses(positions: SitePositions, hooks: frozenset[str], layer: int) -> bool:
    return any(positions.uses(hook, layer) for hook in hooks)


def _context(positions: SitePositions, length: int, layer: int, content: Content) -> AttentionContext:
    dims, at = positions.dims, Positions.counted(0, length)
    tokens = torch.full((1, length), dims.padding_idx + 1)
    if "</s>" in dims.words:
        tokens.fill_(dims.words["</s>"] + 1)
        if any(method.card.documents for method in positions.methods):
            tokens[:, _SEGMENT - 1 :: _SEGMENT] = dims.words.get("<sep>", dims.words["</s>"])
    sentence = examples.random_sentence(range(length), dims.relations or examples.RELATIONS)
    side = examples.side_inputs(positions.methods, [sentence], length)
    ctx = AttentionContext(
        at, at, layer=layer, causal=dims.causal, cross=dims.cross, tokens=tokens, query_tokens=tokens, source=tokens,
        project=content.project,
        inputs=tuple(x.expand(1, length, -1) for x in content.hidden), side=SideInputs(side, positions.side_inputs),
    )  # fmt: skip
    return positions.begin(ctx)


def position_vectors(positions: SitePositions, length: int, layer: int = 0) -> Tensor | None:
    """Return one vector per position, [T, C]. `_vectors` computes the vectors as the input of the query projection.

    Return None if the method has no vectors.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        ctx = _context(positions, length, layer, plain_content(positions.dims))
        vectors = _vectors(positions, ctx)[1] if _uses(positions, _VECTORS, layer) else torch.zeros(())
    return vectors[0] if vectors.any() else None


def _vectors(positions: SitePositions, ctx: AttentionContext) -> tuple[Tensor, Tensor]:
    """Return the input of a layer and the input of its query projection, [1, T, C] each.

    The word embeddings are zero. For methods that multiply word embeddings by a vector of the position, the word embeddings are
    one.
    """

    def of_words(words: Tensor) -> tuple[Tensor, Tensor]:
        x = positions.apply_chain("before_layer", positions.embed(words, ctx.tokens, ctx), ctx=ctx)
        return x, positions.project_input("query", x, ctx.queries, ctx)

    zeros = torch.zeros(1, ctx.keys.ids.size(1), positions.dims.embed_dim)
    added, multiplied = of_words(zeros), of_words(zeros + 1)
    one_for_all = torch.allclose(multiplied[1], multiplied[1][:, :1].expand_as(multiplied[1]))
    return added if added[1].any() or one_for_all else multiplied


def _cosines(positions: SitePositions, ctx: AttentionContext) -> Tensor | None:
    """Return the cosine similarity of the position vectors of each query and key, [1, T, S].

    `_vectors` computes the vectors. Return None if the method has no vectors.
    """
    x, queries = _vectors(positions, ctx)
    mixed = any(method.mixes_keys for method, _ in positions.using("project_input", ctx))
    keys = x if mixed else positions.project_input("key", x, ctx.keys, ctx)
    keys = keys if keys.any() else queries  # some methods add positions to queries only
    if not queries.any():
        return None
    return torch.cosine_similarity(queries.unsqueeze(2), keys.unsqueeze(1), dim=-1)


def _projected(positions: SitePositions, ctx: AttentionContext, content: Content) -> Tensor:
    """Return vectors [1, H, T, D] that are both queries and keys. The scaled product of a query and a key is 1."""
    direction = content.direction.float()
    scale = ctx.scale or direction.size(-1) ** -0.5
    size = direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (direction / size * scale**-0.5)[None, :, None].expand(-1, -1, ctx.keys.ids.size(1), -1)


def _scores(positions: SitePositions, ctx: AttentionContext, content: Content) -> Matrix:
    """Return the scores. All tokens have the same content, so every score is 1 if no hook changes it.

    If hooks change the scores and no hook rotates queries or keys, subtract 1. The result is then the effect of the positions.
    """
    everywhere = ctx.replace(causal=False)  # in a causal context, methods do not compute the scores of later keys
    x = _projected(positions, ctx, content)
    q = positions.scale_queries(positions.rotate("query", x, ctx.queries, ctx), ctx)
    k = positions.rotate("key", x, ctx.keys, ctx)
    scores = Attention.logits(positions, everywhere, q, k, positions.sum_terms("bias", ctx=everywhere))
    quantity = SCORE
    if _uses(positions, _CHANGES, ctx.layer) and not _uses(positions, _ROTATIONS, ctx.layer):
        quantity, scores = CHANGE, scores - (x * ctx.scale) @ x.mT
    mask = positions.mask(ctx)
    allowed = torch.ones(1, 1, *scores.shape[2:], dtype=torch.bool)
    allowed = allowed.tril() if mask.causal else allowed if mask.allowed is None else mask.allowed
    if mask.fully_masked is not None:
        allowed = allowed & ~mask.fully_masked
    return Matrix(torch.where(allowed, scores, torch.nan)[0], quantity)


def _weights(positions: SitePositions, ctx: AttentionContext, content: Content) -> Tensor:
    """Return the derivatives of attention outputs with respect to values, [H, T, S], for a method with the hook `attend`.

    The derivatives are averaged over channels. If the output of `attend` is linear in the values, the derivatives are the
    attention weights.
    """
    x = _projected(positions, ctx, content)
    heads, length = x.size(1), x.size(2)
    keys = x.transpose(1, 2).flatten(2)  # [1, S, C]
    if any(method.mixes_keys for method, _ in positions.using("project_input", ctx)):
        keys = positions.project_input("key", keys, ctx.keys, ctx)
    keys = keys.unflatten(-1, (heads, -1)).transpose(1, 2)
    q = positions.rotate("query", x, ctx.queries, ctx)
    k = positions.rotate("key", keys, ctx.keys, ctx)
    ((method, here),) = positions.using("attend", ctx)
    with torch.enable_grad():
        values = content.hidden[1].float().expand(1, length, -1).clone().requires_grad_()
        v = positions.project_input("value", values, ctx.keys, ctx)
        out = method.attend(q, k, v.unflatten(-1, (heads, -1)).transpose(1, 2), here)  # [1, H, T, D]
        rows = [torch.autograd.grad(row.sum(), values, retain_graph=True)[0][0] for row in out.unbind(2)]
    weights = torch.stack(rows).unflatten(-1, (heads, -1)).mean(-1).permute(2, 0, 1)  # [T, S, C] -> [H, T, S]
    seen = torch.ones(weights.shape[1:], dtype=torch.bool)
    return torch.where(seen.tril() if ctx.causal else seen, weights, torch.nan)

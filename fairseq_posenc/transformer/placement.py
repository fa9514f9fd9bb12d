"""The position methods placed at one site of one stack, ready for its attention (torch only)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..contract import AttentionContext, Dims, PositionError, PositionMethod, Positions
from ..ops.biased import merged

#: hooks that a method with `attend` leaves without effect, for it replaces all that they change
_INSIDE_KERNEL = frozenset({"bias", "content_scores", "rescale", "mask", "content_values", "scale"})
#: hooks that change a projection or read it
_OF_PROJECTION = {
    "query": ("query_input", "rotate_query", "content_scores", "rescale"),
    "key": ("key_input", "rotate_key", "content_scores", "rescale"),
    "value": ("value_input", "content_values"),
}
#: hooks that act before the layers, where a choice of layers means nothing
_BEFORE_LAYERS = frozenset({"positions", "draw", "embed"})
#: words for which decoding makes a bias at a time
_AHEAD = 32


@dataclass(frozen=True)
class Additive:
    """What an attention adds to its scores and where it may look; the same for every layer that agrees on it.

    `logits` is the bias with -inf where `allowed` is false, or `allowed` itself without a bias, or None with neither.
    """

    bias: Tensor | None = None  # [B or 1, H or 1, T, S]
    allowed: Tensor | None = None  # bool [B or 1, H or 1, T or 1, S]
    blind: Tensor | None = None  # bool [B or 1, H or 1, T, 1], True for queries that may look nowhere
    logits: Tensor | None = None
    causal: bool = False  # causality is the only mask and there is no bias

    @classmethod
    def of(cls, bias: Tensor | None, allowed: Tensor | None, may_be_blind: bool) -> Additive:
        """Where a query may look nowhere it looks everywhere, for the softmax's sake, and its output becomes zero."""
        blind = None
        if may_be_blind:
            blind = ~allowed.any(-1, keepdim=True)
            allowed = allowed | blind
        return cls(bias, allowed, blind, allowed if bias is None else merged(bias, allowed))

    def joined(self, mask: Tensor) -> Additive:
        """With a further mask [T, S]: bool, True where a query may not look, or numbers to add."""
        mask = mask[None, None]
        bias, allowed = self.bias, torch.ones_like(mask, dtype=torch.bool).tril() if self.causal else self.allowed
        if self.blind is not None:
            allowed = allowed & ~self.blind
        further = ~mask if mask.dtype == torch.bool else mask > float("-inf")
        if mask.dtype != torch.bool:
            finite = mask.masked_fill(~further, 0.0)
            bias = finite if bias is None else bias + finite
        return Additive.of(bias, further if allowed is None else allowed & further, may_be_blind=True)


class Placement(nn.Module):
    """The methods of one site: vectors pass through all in the order of the spec, scores and values add up, masks join.

    Raises PositionError where two methods contradict each other, or where `layers` names a layer that does not exist or a
    method that enters before the layers.
    """

    def __init__(self, parts: list[PositionMethod], dims: Dims, site: str):
        super().__init__()
        self.dims, self.site = dims, site
        self.parts = nn.ModuleList(parts)
        self._plans = [self._plan(layer) for layer in range(dims.num_layers)]
        for layer, plan in enumerate(self._plans):
            _refuse_contradictions(plan, dims, self.projections(layer))
        self._entry = {hook: [p for p in parts if hook in p.hooks] for hook in _BEFORE_LAYERS}
        self._scales = [
            next((part.scale(dims.head_dim) for part, _ in plan.get("scale", ())), dims.head_dim**-0.5) for plan in self._plans
        ]

    def _plan(self, layer: int) -> dict:
        """hook -> the methods that use it at this layer, each with the layer as the method counts them."""
        plan: dict = {}
        for part in self._serving(layer):
            layers = part.options.layers
            for hook in part.hooks:
                plan.setdefault(hook, []).append((part, layer if layers is None else layers.index(layer)))
        return plan

    def _serving(self, layer: int) -> list[PositionMethod]:
        return [part for part in self.parts if part.options.layers is None or layer in part.options.layers]

    def projections(self, layer: int | None = None) -> frozenset[str]:
        """The projections that the attention of a layer needs, or one that stands for all layers."""
        if layer is None:
            return frozenset().union(*(self.projections(layer) for layer in range(self.dims.num_layers)))
        return PositionMethod.projections.intersection(*(part.projections for part in self._serving(layer)))

    @property
    def limit(self) -> float:
        """The number of query positions beyond which some method cannot serve."""
        return min((part.limit for part in self.parts if part.limit is not None), default=math.inf)

    @property
    def key_limit(self) -> float:
        """The same for key positions."""
        return min((part.key_limit for part in self.parts if part.key_limit is not None), default=math.inf)

    def check_length(self, ctx: AttentionContext) -> None:
        """Raises PositionError where a method cannot serve positions as large as these."""
        own, other = {"encoder": ("source",) * 2, "decoder": ("target",) * 2, "cross": ("target", "source")}[self.site]
        for part in self.parts:
            for side, at, limit in ((own, ctx.queries, part.limit), (other, ctx.keys, part.key_limit)):
                if limit is not None and at.last >= limit:
                    raise PositionError(
                        f"{part.card.name} ({self.site}): a {side} sentence of {at.last + 1} positions exceeds its {limit}; "
                        f"leave out longer sentences, or train with a larger --max-{side}-positions"
                    )

    def uses(self, hook: str, layer: int) -> bool:
        return hook in self._plans[layer]

    def scale(self, layer: int) -> float:
        return self._scales[layer]

    def using(self, hook: str, ctx: AttentionContext) -> list[tuple[PositionMethod, AttentionContext]]:
        """The methods with this hook at this layer, each with the context as it sees it."""
        return [(part, self._seen_by(part, ctx, layer)) for part, layer in self._plans[ctx.layer].get(hook, ())]

    def _seen_by(self, part: PositionMethod, ctx: AttentionContext, layer: int) -> AttentionContext:
        """The context with the layer as the method counts it, and where methods are several, with a state of its own."""
        if ctx.state is not None and len(self.parts) > 1:
            index = next(index for index, other in enumerate(self.parts) if other is part)
            return ctx.at(layer=layer, state=ctx.state.within(f"part{index}"))
        return ctx if layer == ctx.layer else ctx.at(layer=layer)

    def through(self, hook: str, x: Tensor, *args: Any, ctx: AttentionContext) -> Tensor:
        """Passes x through a vector hook of every method."""
        for part, here in self.using(hook, ctx):
            x = getattr(part, hook)(x, *args, here)
        return x

    def total(self, hook: str, *args: Any, ctx: AttentionContext) -> Tensor | None:
        """The sum of an additive hook over the methods, or None where none has it."""
        total = None
        for part, here in self.using(hook, ctx):
            term = getattr(part, hook)(*args, here)
            if term is not None:
                total = term if total is None else total + term
        return total

    def keeps_keys(self, layer: int) -> bool:
        return all(part.keeps_keys for part, _ in self._plans[layer].get("attend", ()))

    def begin(self, ctx: AttentionContext, rows: int = 1) -> AttentionContext:
        """The context of one forward of this many sentences: checked for length, with the methods' positions and draws."""
        self.check_length(ctx)
        if self._entry["positions"]:
            keys = self.positions(ctx.keys, rows)
            if ctx.site == "cross" or keys is ctx.keys:
                queries = self.positions(ctx.queries, rows)
            else:  # of the same tokens as the last keys
                queries = Positions(keys.ids[:, keys.ids.size(1) - ctx.queries.ids.size(1) :])
            ctx = ctx.at(queries=queries, keys=keys)
        if self._entry["draw"]:
            ctx = ctx.at(drawn={part: part.draw(self._seen_by(part, ctx, ctx.layer)) for part in self._entry["draw"]})
        return ctx

    def positions(self, at: Positions, rows: int) -> Positions:
        """The ids that the methods see: drawn for each sentence in training, the same as given in evaluation."""
        given = ids = at.ids.expand(rows, -1) if self.training else at.ids
        for part in self._entry["positions"]:
            ids = part.positions(ids)
        return at if ids is given else Positions(ids)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        for part in self._entry["embed"]:
            x = part.embed(x, tokens, self._seen_by(part, ctx, ctx.layer))
        return x

    def prepare(self, ctx: AttentionContext) -> list[Additive | None]:
        """For every layer, what it adds to its scores, made once where layers agree; None where a layer must make its own."""
        made: dict = {}
        prepared: list[Additive | None] = []
        for layer, plan in enumerate(self._plans):
            parts = [part for hook in ("bias", "mask") for part, _ in plan.get(hook, ())]
            if any(part.per_layer for part in parts):
                prepared.append(None)
                continue
            key = tuple(map(id, parts))
            if key not in made:
                made[key] = self.additive(ctx.at(layer=layer))
            prepared.append(made[key])
        return prepared

    def _bias(self, ctx: AttentionContext) -> Tensor | None:
        """The sum of the biases; decoding word by word makes it for some words ahead, which no method can tell."""
        parts = [part for part, _ in self._plans[ctx.layer].get("bias", ())]
        at, keys = ctx.queries.start, ctx.keys
        one_word = ctx.state is not None and at is not None and ctx.queries.ids.size(1) == 1 and keys.start == 0
        if not (parts and one_word and self.site == "decoder") or self.training or any(part.reads_words for part in parts):
            return self.total("bias", ctx=ctx)
        first = at - at % _AHEAD
        end = min(first + _AHEAD, self.limit, self.key_limit)
        known = ctx.state.get(f"bias{ctx.layer}")  # [1, H or 1, end - first, end]
        if known is None or known.size(3) != end:
            device = keys.ids.device
            queries, keys = Positions.counted(first, end - first, device), Positions.counted(0, end, device)
            of_positions = AttentionContext(ctx.site, queries, keys, ctx.layer, ctx.causal, drawn=ctx.drawn)
            known = ctx.state.fix(f"bias{ctx.layer}", self.total("bias", ctx=of_positions))
        return known[:, :, at - first, None, : at + 1]

    def additive(self, ctx: AttentionContext) -> Additive:
        """Bias, method's masks, padding and causality of one layer, merged."""
        bias = self._bias(ctx)
        queries, keys = ctx.queries.ids.size(1), ctx.keys.ids.size(1)
        allowed = None if ctx.key_padding is None else ~ctx.key_padding[:, None, None, :]  # [B, 1, 1, S]
        masks = [part.mask(here) for part, here in self.using("mask", ctx)]
        causal = ctx.causal and queries > 1
        if causal and bias is None and allowed is None and not masks and queries == keys:
            return Additive(causal=True)
        if causal:  # the last query stands at the last key, also after cached steps
            masks.append(torch.ones(1, 1, queries, keys, dtype=torch.bool, device=ctx.keys.ids.device).tril(keys - queries))
        for mask in masks:
            allowed = mask if allowed is None else allowed & mask
        # the first queries of a left-padded sentence see only padding
        may_be_blind = self.uses("mask", ctx.layer) or (causal and ctx.key_padding is not None)
        return Additive.of(bias, allowed, may_be_blind)


def _refuse_contradictions(plan: dict, dims: Dims, projections: frozenset[str]) -> None:
    """Raises PositionError with the reason where methods of one layer cannot be combined."""
    kernels = [part for part, _ in plan.get("attend", ())]
    if kernels:
        others = {p.card.name for hook in _INSIDE_KERNEL | {"attend"} for p, _ in plan.get(hook, ()) if p is not kernels[0]}
        if others:
            raise PositionError(
                f"{kernels[0].card.name} replaces the whole attention kernel, so {', '.join(sorted(others))} "
                "would have no effect beside it; use it alone or with methods that act on the embeddings"
            )
    for side in PositionMethod.projections - projections:
        unread = [part for hook in _OF_PROJECTION[side] for part, _ in plan.get(hook, ()) if side in part.projections]
        if unread:
            without = next(part for parts in plan.values() for part, _ in parts if side not in part.projections)
            raise PositionError(
                f"{unread[0].card.name} needs the {side} projection, which {without.card.name} does without; "
                "give them different layers (layers=...) or leave one out"
            )
    scales = {part.card.name: part.scale(dims.head_dim) for part, _ in plan.get("scale", ())}
    if len(set(scales.values())) > 1:
        listed = ", ".join(f"{name} by {value:.4g}" for name, value in scales.items())
        raise PositionError(f"methods scale the product of queries and keys differently ({listed}); choose one of them")
    rescaling = sorted((part for part, _ in plan.get("rescale", ())), key=lambda part: part.rescales == "factor")
    if len(rescaling) > 1 and rescaling[0].rescales != "factor":
        raise PositionError(
            f"{rescaling[0].card.name} does not only multiply the scores, so it matters whether {rescaling[1].card.name} "
            "comes before or after it; give them different layers (layers=...) or leave one out"
        )
    changing = [part for hook in ("key_input", "value_input", "rotate_key") for part, _ in plan.get(hook, ())]
    for compressing in (part for part in changing if part.compresses):
        for other in (part for part in changing if part is not compressing):
            raise PositionError(
                f"{compressing.card.name} mixes the keys of all positions, so {other.card.name} finds none to act on; "
                "give them different layers (layers=...) or leave one out"
            )
    rotating = [part.card.name for part, _ in plan.get("rotate_query", ())]
    if len(rotating) > 1:
        raise PositionError(
            f"{rotating[0]} and {rotating[1]} both replace queries and keys; "
            "give them different layers (layers=...) or leave one out"
        )
    readers = [part for part, _ in plan.get("content_scores", ())] + [p for p in rescaling if p.rescales == "content"]
    reading = [part.card.name for part in readers if part.card.name not in rotating]
    if rotating and reading:
        raise PositionError(
            f"{reading[0]} has a term of the queries that {rotating[0]} rotates, so its relative term would depend on the "
            "absolute position; give one of them other layers (layers=...) or leave it out"
        )

"""Position methods at one site of one stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..core import AttentionContext, Dims, PositionError, PositionMethod, Positions, Projection, SideInput
from ..core.export import refuse_script, refuse_trace
from ..core.hooks import BEFORE_LAYERS, NEEDS_SCORES
from ..core.method import default_scale
from ..core.side import declared_by
from ..ops import devices
from ..ops.precision import at_least_float32
from .composition import refuse_contradictions
from .mask import AttentionMask

#: number of steps for which decoding computes a bias in advance
_WORDS_AHEAD = 32
#: On an accelerator, a bias is a matrix, or two factors that become channels of queries and keys. Factors are used from this
#: number of queries, because they need fewer bytes. The kinds of bias are: one matrix per layer and sentence, one matrix whose
#: gradient has one matrix per layer and sentence, and one constant matrix for all layers
_FACTORS_FROM = {"content": 128, "learned": 1024, "constant": 2048}
#: hooks of other methods that need the bias as a matrix
_NEED_A_MATRIX = {"mask", "content_scores", "attend", *NEEDS_SCORES}
#: width of queries and keys, with the channels of the factors, that all fused kernels support
_WIDEST = 256
#: whether the queries, and the keys, of each site belong to the source or the target sentence
_SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}


class SitePositions(nn.Module):
    """Contain the methods of one site.

    Vectors pass through the methods in the order of the spec. Terms of several methods are added. A query attends to a key only
    if all masks allow this key.

    Raise PositionError if two methods cannot be combined.
    """

    __prepare_scriptable__ = refuse_script
    methods: Sequence[PositionMethod]  # an nn.ModuleList

    def __init__(self, methods: list[PositionMethod], dims: Dims, site: str):
        super().__init__()
        self.dims, self.site = dims, site
        self.methods = cast(Any, nn.ModuleList(methods))
        self._users = [self._users_at(layer) for layer in range(dims.num_layers)]
        self._before_layers = {hook: [method for method in methods if hook in method.hooks] for hook in BEFORE_LAYERS}
        #: number of rows of the smallest table of positions, or None
        self._rows = min((m.limit for m in methods if m.limit is not None and "positions" not in m.hooks), default=None)
        self._scales: list[float] = []
        for layer, users in enumerate(self._users):
            plain = {hook: [method for method, _ in found] for hook, found in users.items()}
            scales = self._constant_scales(users)
            refuse_contradictions(plain, self.projections(layer), scales)
            self._scales.append(next(iter(scales.values()), default_scale(dims.head_dim)))
        self._refuse_fractions_beside_tables()
        self._refuse_positions_past_tables()
        self._refuse_positions_beside_counts()

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Rename parameters of earlier versions, in which the module `methods` has the name `parts`. fairseq calls this
        function before it loads a state dict.
        """
        old = f"{name}.parts."
        for key in [key for key in state_dict if key.startswith(old)]:
            state_dict[f"{name}.methods.{key.removeprefix(old)}"] = state_dict.pop(key)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        self.upgrade_state_dict_named(state_dict, prefix.removesuffix("."))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _constant_scales(self, users: dict[str, list[tuple[PositionMethod, int]]]) -> dict[PositionMethod, float]:
        """Return a mapping from method to scale at one layer. Scales that are tensors are left out."""
        at, dims = Positions.counted(0, 1), self.dims
        found: dict[PositionMethod, float] = {}
        for method, layer in users.get("scale", ()):
            scale = method.scale(AttentionContext(at, at, layer=layer, causal=dims.causal, cross=dims.cross))
            if not isinstance(scale, Tensor):
                found[method] = scale
        return found

    def _refuse_fractions_beside_tables(self) -> None:
        """Raise PositionError if one method produces fractional positions and another method requires integers."""
        for moving in self.methods:
            for other in self.methods:
                if moving.position_type == "fractional" and other.position_type == "integer":
                    raise PositionError(
                        f"{moving.card.name}+{other.card.name}: {moving.card.name} produces fractional positions "
                        "during training. "
                        f"{other.card.name} requires integer positions. Remove one of the two."
                    )

    def _refuse_positions_past_tables(self) -> None:
        """Raise PositionError if one method maps positions beyond the limit of another method."""
        for moving in self._before_layers["positions"]:
            needed = moving.reach(self.dims.max_positions)
            for other in self.methods:
                if other is not moving and other.limit is not None and needed > other.limit:
                    raise PositionError(
                        f"{moving.card.name}+{other.card.name}: {moving.card.name} maps {self.dims.max_positions} positions to "
                        f"positions up to {needed:g}, but {other.card.name} supports only {other.limit}. Expected a method that "
                        f"is not bounded instead of {other.card.name}. For these methods, run posenc list --unbound yes."
                    )

    def _refuse_positions_beside_counts(self) -> None:
        """Raise PositionError if one method changes positions, and another method counts tokens.

        The other method has `counts_tokens`, or it has the hook `positions` and position_type="integer".
        """
        for moving in self._before_layers["positions"]:
            for other in self.methods:
                if other is not moving and other.counts_tokens:
                    raise PositionError(
                        f"{other.card.name} counts positions from the tokens, so the positions of {moving.card.name} would have "
                        "no effect on it. Expected no other method that changes positions. Leave one of them out."
                    )
                if other is not moving and other.position_type == "integer" and other in self._before_layers["positions"]:
                    raise PositionError(
                        f"{moving.card.name}+{other.card.name}: {other.card.name} numbers the tokens of a sentence, so the "
                        f"positions of {moving.card.name} would have no effect on it. Expected no other method that changes "
                        "positions. Leave one of them out."
                    )

    # -- what the methods need ---------------------------------------------------------------------------------------

    def _users_at(self, layer: int) -> dict[str, list[tuple[PositionMethod, int]]]:
        """Return a mapping from each hook to the methods that use this hook at this layer.

        The mapping contains pairs of a method and an index. The index is the place of this layer in the option `layers` of the
        method. If the option is not set, the index is the index of the layer in the stack.
        """
        users: dict = {}
        for method in self._serving(layer):
            layers = method.options.layers
            for hook in method.hooks:
                users.setdefault(hook, []).append((method, layer if layers is None else layers.index(layer)))
        return users

    def _serving(self, layer: int) -> list[PositionMethod]:
        return [method for method in self.methods if method.options.layers is None or layer in method.options.layers]

    def projections(self, layer: int | None = None) -> frozenset[str]:
        """Return the projections that the attention of one layer needs. With layer None, return the projections of all layers."""
        if layer is None:
            return frozenset().union(*(self.projections(layer) for layer in range(self.dims.num_layers)))
        return PositionMethod.projections.intersection(*(method.projections for method in self._serving(layer)))

    def uses(self, hook: str, layer: int) -> bool:
        """Return whether a method has this hook at this layer."""
        return hook in self._users[layer]

    def scale(self, layer: int) -> float:
        """Return the constant factor of the product of queries and keys at this layer."""
        return self._scales[layer]

    def caches_keys(self, layer: int) -> bool:
        """Return whether decoding caches projected keys and values at this layer."""
        return all(method.caches_keys for method, _ in self._users[layer].get("attend", ()))

    def divisible(self, ctx: AttentionContext) -> bool:
        """Return whether the hooks inside an attention may be called for one block of queries at a time."""
        methods = self._serving(ctx.layer)
        plain = not any(method.card.side_inputs or method.card.losses or method.mixes_keys for method in methods)
        return plain and ctx.state is None and not ctx.prepared

    @property
    def side_inputs(self) -> dict[str, SideInput]:
        """Return the side inputs of the methods by name."""
        return declared_by([method.card for method in self.methods])

    @property
    def waits(self) -> bool:
        """Return whether a method copies a value from the accelerator to the CPU in every forward pass."""
        return any(method.waits for method in self.methods)

    @property
    def limit(self) -> float:
        """Return the maximum number of query positions that all methods support."""
        return min((method.limit for method in self.methods if method.limit is not None), default=math.inf)

    @property
    def key_limit(self) -> float:
        """Return the maximum number of key positions that all methods support."""
        return min((method.key_limit for method in self.methods if method.key_limit is not None), default=math.inf)

    def limits(self) -> list[tuple[PositionMethod, str, int]]:
        """Return the methods with a limit, each with the side ("source" or "target") and the maximum number of positions."""
        own, other = _SIDES[self.site]
        found = [(method, *at) for method in self.methods for at in ((own, method.limit), (other, method.key_limit))]
        return [(method, side, limit) for method, side, limit in found if limit is not None]

    def check_length(self, ctx: AttentionContext) -> None:
        """Raise PositionError if positions are beyond the limit of a method."""
        own, other = _SIDES[self.site]
        for method in self.methods:
            for side, at, limit in ((own, ctx.queries, method.limit), (other, ctx.keys, method.key_limit)):
                if limit is not None and at.last >= limit:
                    raise PositionError(
                        f"{method.card.name} ({self.site}): a {side} sentence has {at.last + 1} positions. Expected at most "
                        f"{limit}. Remove longer sentences, or train with a larger --max-{side}-positions."
                    )

    # -- calling hooks -----------------------------------------------------------------------------------------------

    def using(self, hook: str, ctx: AttentionContext) -> list[tuple[PositionMethod, AttentionContext]]:
        """Return the methods with this hook at this layer, each with its own context."""
        return [(method, self._seen_by(method, ctx, layer)) for method, layer in self._users[ctx.layer].get(hook, ())]

    def _seen_by(self, method: PositionMethod, ctx: AttentionContext, layer: int) -> AttentionContext:
        """Return the context of one method. `layer` is the index of the layer among the layers of this method.

        If the site has several methods, each method has its own state.
        """
        if ctx.state is not None and len(self.methods) > 1:
            index = next(index for index, other in enumerate(self.methods) if other is method)
            return ctx.replace(layer=layer, state=ctx.state.within(f"method{index}"))
        return ctx if layer == ctx.layer else ctx.replace(layer=layer)

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Pass the input of a projection through the methods that change it: [B, T, C] -> [B, T', C].

        T' differs from T only if `x` is the input of keys or values and a method changes the number of keys.
        """
        return self._apply_to(which, "project_input", x, at, ctx)

    def rotate(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        """Pass projected queries or keys through the method that rotates them: [B, H, T, D] -> [B, H, T, D']."""
        return self._apply_to(which, "rotate", x, at, ctx)

    def scale_queries(self, q: Tensor, ctx: AttentionContext) -> Tensor:
        """Multiply queries [B, H, T, D] by the results of the hook `scale` that are tensors.

        The hook `content_scores` reads queries without these factors. If a method has this hook, return the queries unchanged.
        `scale_product` then multiplies the queries by the factors. The constant scale ctx.scale is applied later, in the
        product of queries and keys.
        """
        return q if self.uses("content_scores", ctx.layer) else self._scaled(q, ctx)

    def scale_product(self, q: Tensor, ctx: AttentionContext) -> Tensor:
        """Return the queries for the product of queries and keys: [B, H, T, D] -> same. `q` is a result of `scale_queries`."""
        return self._scaled(q, ctx) if self.uses("content_scores", ctx.layer) else q

    def _scaled(self, q: Tensor, ctx: AttentionContext) -> Tensor:
        for method, here in self.using("scale", ctx):
            scale = method.scale(here)
            if isinstance(scale, Tensor):
                q = (at_least_float32(q) * scale).to(q.dtype)
        return q

    def _apply_to(self, which: Projection, hook: str, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        for method, here in self.using(hook, ctx):
            if which in method.projections_of(hook):
                x = getattr(method, hook)(which, x, at, here)
        return x

    def apply_chain(self, hook: str, x: Tensor, *args: Any, ctx: AttentionContext) -> Tensor:
        """Call the hook with the name `hook` of every method that uses this hook.

        Each call receives the result of the previous call as x.
        """
        for method, here in self.using(hook, ctx):
            x = getattr(method, hook)(x, *args, here)
        return x

    def sum_terms(self, hook: str, *args: Any, ctx: AttentionContext) -> Tensor | None:
        """Return the sum of the results of this hook, or None if all results are None."""
        total = None
        for method, here in self.using(hook, ctx):
            term = getattr(method, hook)(*args, here)
            if term is not None:
                total = term if total is None else total + term
        return total

    # -- one forward pass --------------------------------------------------------------------------------------------

    def begin(self, ctx: AttentionContext, rows: int = 1) -> AttentionContext:
        """Return the context of one forward pass: check lengths and side inputs, compute positions and call `prepare`."""
        refuse_trace()
        self.check_length(ctx)
        for method in self.methods:
            if method.card.side_inputs:
                ctx.side.require(method.card.side_inputs, f"{method.card.name} ({self.site})")
        if self._before_layers["positions"]:
            keys = self.positions(ctx.keys, rows, ctx)
            if ctx.cross or keys is ctx.keys:
                queries = self.positions(ctx.queries, rows, ctx)
            else:  # the queries are the last keys
                queries = Positions(keys.ids[:, keys.ids.size(1) - ctx.queries.ids.size(1) :])
            ctx = ctx.replace(queries=queries, keys=keys)
        ctx = self.at_layer(ctx, ctx.layer).replace(store=ctx.store.of_site())
        preparing = self._before_layers["prepare"]
        if not preparing:
            return ctx
        return ctx.with_prepared({method: method.prepare(self._seen_by(method, ctx, ctx.layer)) for method in preparing})

    def positions(self, at: Positions, rows: int, ctx: AttentionContext) -> Positions:
        """Return the position ids after the hook `positions`. In training, each sentence has its own ids: [rows, T].

        In training, padding after a sentence can have positions beyond the smallest table of the methods. The function replaces
        these positions by the last row number of this table.
        """
        given = ids = at.ids.expand(rows, -1) if self.training else at.ids
        for method in self._before_layers["positions"]:
            ids = method.positions(ids, ctx)
        if ids is given:
            return at
        return Positions(ids.clamp(max=self._rows - 1) if self.training and self._rows is not None else ids)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        """Pass the embeddings through the methods that change them: [B, T, C] -> [B, T, C]."""
        for method in self._before_layers["embed"]:
            x = method.embed(x, tokens, self._seen_by(method, ctx, ctx.layer))
        return x

    def at_layer(self, ctx: AttentionContext, layer: int) -> AttentionContext:
        """Return the context of one layer, with the scale of its scores."""
        return ctx.replace(layer=layer, scale=self._scales[layer] if self._scales else ctx.scale)

    def restricts(self, layer: int) -> bool:
        """Return whether a method restricts the attention of this layer to a sentence."""
        return any(method.card.local for method in self._serving(layer))

    def masks(self, ctx: AttentionContext, local: bool = True) -> list[AttentionMask | None]:
        """Return the mask of every layer. The entry of a layer that must compute its own mask is None.

        Layers with the same methods and the same scale share one mask. `local` is False for a global attention, which ignores
        the masks that restrict attention to a sentence.
        """
        made: dict = {}
        masks: list[AttentionMask | None] = []
        for layer, users in enumerate(self._users):
            methods = [method for hook in ("bias", "mask") for method, _ in users.get(hook, ())]
            if any(method.per_layer for method in methods):
                masks.append(None)
                continue
            key = (tuple(map(id, methods)), self._scales[layer], bool(users.keys() & _NEED_A_MATRIX))
            if key not in made:
                made[key] = self.mask(self.at_layer(ctx, layer), local, factored=True)
            masks.append(made[key])
        return masks

    def mask(self, ctx: AttentionContext, local: bool = True, factored: bool = False) -> AttentionMask:
        """Return the mask of one layer: bias, masks of methods, padding and causal mask. `local` is as in `masks`.

        With `factored`, the mask contains two factors of the bias instead of its matrix, if this is faster.
        """
        factors = self._bias_factors(ctx) if factored else None
        if factors is not None:
            plain = ctx.once("mask without bias", lambda: self._mask(ctx, None, []))
            return replace(plain, factors=factors)
        masks = [method.mask(here) for method, here in self.using("mask", ctx) if local or not method.card.local]
        return self._mask(ctx, self._bias(ctx), masks)

    def _mask(self, ctx: AttentionContext, bias: Tensor | None, masks: list[Tensor]) -> AttentionMask:
        """Combine a bias and the masks of methods with padding and the causal mask."""
        queries, keys = ctx.queries.ids.size(1), ctx.keys.ids.size(1)
        allowed = None if ctx.key_padding is None else ~ctx.key_padding[:, None, None, :]  # [B, 1, 1, S]
        causal = ctx.causal and queries > 1
        if causal and bias is None and allowed is None and not masks and queries == keys:
            return AttentionMask(causal=True)
        if causal:  # the last query has the position of the last key, also after cached steps
            masks.append(torch.ones(1, 1, queries, keys, dtype=torch.bool, device=ctx.keys.ids.device).tril(keys - queries))
        for mask in masks:
            allowed = mask if allowed is None else allowed & mask
        # for the first queries of a left-padded sentence, all keys that the causal mask allows are padding
        may_mask_fully = self.uses("mask", ctx.layer) or (causal and ctx.key_padding is not None)
        return AttentionMask.of(bias, allowed, may_mask_fully)

    def _bias_factors(self, ctx: AttentionContext) -> tuple[Tensor, Tensor] | None:
        """Return the factors of the bias of one layer, or None if a bias matrix is faster or the matrix is needed.

        The factors replace the matrix only in attention of a whole sequence, if padding and the causal mask are the only other
        terms. Factors for causal attention require ascending positions, which a method with the hook `positions` need not return.
        On a CPU, the matrix is faster, because additional channels are copies of queries, keys and values.
        """
        users, queries = self._users[ctx.layer], ctx.queries.ids
        whole = ctx.state is None and (not ctx.causal or queries.size(1) == ctx.keys.ids.size(1))
        ascending = ctx.keys.start is not None or not self._before_layers["positions"]
        exact = whole and (ascending or not ctx.causal) and not users.keys() & _NEED_A_MATRIX
        if devices.on_cpu(queries) or not exact or len(users.get("bias", ())) != 1:
            return None
        ((method, here),) = self.using("bias", ctx)
        learned = method.card.learnable and torch.is_grad_enabled()
        if queries.size(1) < _FACTORS_FROM["content" if method.content_dependent else "learned" if learned else "constant"]:
            return None
        factors = method.bias_factors(here)
        return None if factors is None or factors[0].size(-1) + self.dims.head_dim > _WIDEST else factors

    def _bias(self, ctx: AttentionContext) -> Tensor | None:
        """Return the sum of the biases. Decoding computes the bias of several steps in advance."""
        methods = [method for method, _ in self._users[ctx.layer].get("bias", ())]
        at, keys = ctx.queries.start, ctx.keys
        one_word = ctx.state is not None and at is not None and ctx.queries.ids.size(1) == 1 and keys.start == 0
        content_dependent = any(method.content_dependent for method in methods)
        if not (methods and one_word and ctx.causal) or self.training or content_dependent:
            return self.sum_terms("bias", ctx=ctx)
        first = at - at % _WORDS_AHEAD
        end = min(first + _WORDS_AHEAD, self.limit, self.key_limit)
        known = ctx.state.get(f"bias{ctx.layer}")  # [1, H or 1, end - first, end]
        if known is None or known.size(3) != end:
            device = keys.ids.device
            ahead = ctx.replace(
                queries=Positions.counted(first, end - first, device),
                keys=Positions.counted(0, end, device),
                inputs=None, tokens=None, project=None, key_padding=None, state=None,
            )  # fmt: skip
            known = ctx.state.store_shared(f"bias{ctx.layer}", self.sum_terms("bias", ctx=ahead))
        return known[:, :, at - first, None, : at + 1]

"""An attention module with position methods. Any Transformer can use the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import AttentionContext, Dims, PositionError, Positions, SideInputs, State
from ..core.hooks import OUTSIDE_ATTENTION
from ..registry import spec as specs
from .mask import AttentionMask
from .multihead import Attention
from .site_positions import SitePositions


class PositionalAttention(Attention):
    """Multi-head attention with positions. As in fairseq, the first axis is time.

    Shapes: query [T, B, C], key and value [S, B, C] -> output [T, B, C] and weights [B, T, S] or None.
    `key_padding_mask` is bool [B, S], True at padding on the left or right. `attn_mask` is [T, S]: True for forbidden keys, or
    numbers that are added to the scores. With site="decoder", the attention is causal. With an incremental state, the queries are
    the newest steps. `side_inputs` are the side inputs of the methods by name. Each token axis of a side input
    has one entry per token of a sentence, including padding tokens.
    Raises: PositionError for a wrong spec, a sentence that is too long, or a mask that the method does not support.
    """

    def __init__(self, positions: SitePositions, dropout: float):
        super().__init__(positions.dims.embed_dim, positions.dims.num_heads, positions.projections(), dropout=dropout)
        self.positions = positions

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Load a state dict. In state dicts of earlier versions, the module `positions` has the name `placement`."""
        for name in [name for name in state_dict if name.startswith(f"{prefix}placement.")]:
            state_dict[f"{prefix}positions.{name.removeprefix(f'{prefix}placement.')}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def position(self) -> nn.Module:
        """Return the method, or all methods if the spec combines several."""
        return self.positions.methods[0] if len(self.positions.methods) == 1 else self.positions

    def forward(  # type: ignore[override]  # the signature of a standalone module
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        incremental_state: dict | None = None,
        need_weights: bool = True,
        side_inputs: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output [T, B, C] and the attention weights [B, T, S]. The class describes the arguments.

        The weights are None if need_weights is false, or if the attention does not compute weights.

        Raise PositionError for a sentence that is too long, and for a mask that the method does not support.
        """
        values = None if value is key else value.transpose(0, 1)  # [S, B, C] -> [B, S, C]
        keys = None if key is query else key.transpose(0, 1)
        query = query.transpose(0, 1)
        key = query if keys is None else keys
        state = None if incremental_state is None else self._state(incremental_state)
        side = SideInputs(side_inputs, self.positions.side_inputs)
        ctx = self.positions.begin(self._context(query, key, key_padding_mask, state, side), query.size(0))
        mask = _with_mask(self.positions.mask(ctx), attn_mask, self.positions)
        out, weights = super().forward(self.positions, ctx, query, key, values, mask, need_weights)
        return out.transpose(0, 1), None if weights is None or not need_weights else weights.mean(1)

    def scores(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        side_inputs: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return scaled scores before any mask.

        Shapes: query [T, B, C], key [S, B, C], query_positions [T] or [B, T], key_positions [S] or [B, S] -> [B, H, T, S].
        Without given positions, queries and keys have the positions 0, 1, ...

        A side input with the axes "B S S" must have the shape [B, T, S, ...], with one entry per pair of these queries and keys.
        """
        query, key = query.transpose(0, 1), key.transpose(0, 1)  # [T, B, C] -> [B, T, C]
        sides = [
            Positions.counted(0, x.size(1), x.device) if ids is None else Positions(ids.reshape(-1, x.size(1)))
            for x, ids in ((query, query_positions), (key, key_positions))
        ]
        dims = self.positions.dims
        ctx = AttentionContext(*sides, causal=dims.causal, cross=dims.cross, inputs=(query, key), project=self.project_one)
        ctx = ctx.replace(side=SideInputs(side_inputs, self.positions.side_inputs))
        ctx = self.positions.begin(ctx, len(query))
        if self.positions.uses("attend", 0):
            raise PositionError(
                "scores: the method replaces the attention kernel, so there are no scores. Expected a method with softmax over "
                "scores. Read the attention weights instead."
            )
        q, k, _ = self.project(self.positions, ctx, query, key, key)
        ctx = ctx.replace(causal=False)  # otherwise, methods would omit the scores that a causal mask hides
        return self.logits(self.positions, ctx, q, k, self.positions.sum_terms("bias", ctx=ctx))

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        """Select the rows `new_order` [B] of the incremental state, as fairseq does for beams."""
        self._state(incremental_state).reorder(new_order)

    def _state(self, incremental_state: dict) -> State:
        return State(incremental_state, f"{id(self)}.")

    def _context(
        self, query: Tensor, key: Tensor, padding: Tensor | None, state: State | None, side: SideInputs
    ) -> AttentionContext:
        """Return the context. Positions count tokens without padding.

        With an incremental state, the queries follow the steps of earlier calls. The state stores the number of these steps.
        """
        dims, device, seen = self.positions.dims, query.device, 0
        if state is not None:
            known = state.get("steps")
            seen = 0 if known is None else int(known)
            state.store_shared("steps", torch.tensor(seen + query.size(1)))
        if dims.cross:
            queries, keys = Positions.counted(seen, query.size(1), device), _pad_free(key.size(1), padding, device)
        else:
            keys = _pad_free(seen + query.size(1), padding, device)
            queries = keys if state is None else Positions(keys.ids[:, seen:], None if keys.start is None else seen)
        return AttentionContext(
            queries, keys, causal=dims.causal, cross=dims.cross, key_padding=padding, inputs=(query, key), state=state, side=side
        )


def build_attention(
    spec: str,
    embed_dim: int,
    num_heads: int,
    *,
    site: str = "encoder",
    max_positions: int = 1024,
    dropout: float = 0.0,
    relations: int = 0,
) -> PositionalAttention:
    """Build an attention with the methods of a spec.

    A call with need_weights=True, the default, stores all scores. need_weights=False is faster and needs less memory.

    Args:
        site: encoder, decoder (causal) or cross.
        relations: number of entries of dict.relations.txt, as in `Dims`, for methods that read relations.

    Raises:
        PositionError: The spec or a size is wrong, a method is not defined at the site, or a method acts outside the attention.
    """
    if min(num_heads, embed_dim) < 1:
        raise PositionError(
            f"attention with embed_dim={embed_dim} and num_heads={num_heads}: not allowed. Expected both to be at least 1."
        )
    dims = Dims(embed_dim, num_heads, 1, max_positions, max_positions, relations=relations).at(site)
    methods = specs.build(spec, dims, site)
    for method in methods:
        if method.hooks & OUTSIDE_ATTENTION:
            where = "on the embeddings" if "embed" in method.hooks else "before every layer"
            raise PositionError(
                f"{method.card.name}: the method acts {where}, outside the attention module. Expected a method that acts in the "
                f"attention. Remove it from {spec!r}, or use a complete model with --arch posenc_transformer."
            )
    return PositionalAttention(SitePositions(methods, dims, site), dropout)


def _pad_free(length: int, padding: Tensor | None, device: torch.device) -> Positions:
    """Return positions that count tokens from 0, without padding.

    The positions of padding columns have no effect, because padding is masked. If padding is only on the right, the positions
    are counted (see `Positions`) for all columns, including padding. Otherwise, each padding column repeats the last position
    before it. Padding at the start of a sentence has position 0.
    """
    counted = Positions.counted(0, length, device)
    if padding is None:
        return counted
    ids = ((~padding).cumsum(1) - 1).clamp(min=0)
    return counted if bool(((ids == counted.ids) | padding).all()) else Positions(ids)


def _with_mask(mask: AttentionMask, further: Tensor | None, positions: SitePositions) -> AttentionMask:
    """Combine the mask of the methods with fairseq's attn_mask."""
    if further is None:
        return mask
    if positions.uses("attend", 0):
        raise PositionError(
            "attn_mask: not supported by a method that replaces the attention kernel. Expected no attn_mask. For a causal mask, "
            "use site='decoder'."
        )
    for method in positions.methods:
        numbers = method.rescale_reads == "weights" and further.dtype != torch.bool
        if numbers and bool((further.isfinite() & (further != 0)).any()):
            raise PositionError(
                f"attn_mask: contains finite numbers. {method.card.name} computes attention weights, so no numbers can be added "
                "to its scores. Expected a boolean mask, or a mask of 0 and -inf."
            )
    return mask.merged_with(further)

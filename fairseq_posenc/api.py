"""The public API: names, cards, and an attention module for any Transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import registry
from .contract import AttentionContext, Dims, PositionError, Positions, State
from .transformer.attention import Attention
from .transformer.placement import Additive, Placement

names, card = registry.names, registry.card


class PositionalAttention(Attention):
    """A multi-head attention with positions, time first as in fairseq.

    Shapes: query [T, B, C], key and value [S, B, C] -> output [T, B, C] and weights [B, T, S] or None.
    `key_padding_mask` is bool [B, S], True at padding on either side; `attn_mask` is [T, S], True where a query may not look,
    or added to the scores. With site="decoder" it is causal by itself; with an incremental state, queries are the newest steps.
    Errors: PositionError for a wrong spec, a sentence too long, or a mask that the method's own kernel cannot use.
    """

    def __init__(self, placement: Placement, dropout: float):
        super().__init__(placement.dims.embed_dim, placement.dims.num_heads, placement.projections(), dropout=dropout)
        self.placement = placement

    @property
    def position(self) -> nn.Module:
        """The method, or all of them where the spec composes several."""
        return self.placement.parts[0] if len(self.placement.parts) == 1 else self.placement

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        incremental_state: dict | None = None,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))  # [T, B, C] -> [B, T, C]
        state = None if incremental_state is None else self._state(incremental_state)
        ctx = self.placement.begin(self._context(query, key, key_padding_mask, state), query.size(0))
        additive = _with_mask(self.placement.additive(ctx), attn_mask, self.placement)
        out, weights = super().forward(self.placement, ctx, query, key, value, additive, need_weights)
        return out.transpose(0, 1), None if weights is None or not need_weights else weights.mean(1)

    def scores(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
    ) -> Tensor:
        """Logits after scaling and before any mask: [T, B, C], [S, B, C] and positions [T], [S] or [B, .] -> [B, H, T, S]."""
        query, key = query.transpose(0, 1), key.transpose(0, 1)
        sides = [
            Positions.counted(0, x.size(1), x.device) if ids is None else Positions(ids.reshape(-1, x.size(1)))
            for x, ids in ((query, query_positions), (key, key_positions))
        ]
        site = self.placement.site
        ctx = self.placement.begin(
            AttentionContext(site, *sides, causal=site == "decoder", inputs=(query, key), project=self.project_one), len(query)
        )
        if self.placement.uses("attend", 0):
            raise PositionError("the method has a kernel of its own and no scores")
        q, k, _ = self.project(self.placement, ctx, query, key, key)
        ctx = ctx.at(causal=False)  # else methods leave out what a mask will hide
        return self.logits(self.placement, ctx, q, k, self.placement.total("bias", ctx=ctx))

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        self._state(incremental_state).reorder(new_order)

    def _state(self, incremental_state: dict) -> State:
        return State(incremental_state, f"{id(self)}.")

    def _context(self, query: Tensor, key: Tensor, padding: Tensor | None, state: State | None) -> AttentionContext:
        """Counts positions without padding; queries follow the steps that the state remembers."""
        site, device = self.placement.site, query.device
        seen = 0
        if state is not None:
            known = state.get("steps")
            seen = 0 if known is None else int(known)
            state.fix("steps", torch.tensor(seen + query.size(1)))
        if site == "cross":
            return AttentionContext(
                site,
                Positions.counted(seen, query.size(1), device),
                _pad_free(key.size(1), padding, device),
                key_padding=padding,
                inputs=(query, key),
                state=state,
            )
        keys = _pad_free(seen + query.size(1), padding, device)
        queries = Positions(keys.ids[:, seen:], None if keys.start is None else seen)
        return AttentionContext(
            site, queries, keys, causal=site == "decoder", key_padding=padding, inputs=(query, key), state=state
        )


def build_attention(
    spec: str, embed_dim: int, num_heads: int, *, site: str = "encoder", max_positions: int = 1024, dropout: float = 0.0
) -> PositionalAttention:
    """Builds an attention with the positions of a spec; raises PositionError where the spec cannot serve."""
    dims = Dims(embed_dim, num_heads, 1, max_positions, max_positions)
    return PositionalAttention(Placement(registry.build(spec, dims, site), dims, site), dropout)


def _pad_free(length: int, padding: Tensor | None, device: torch.device) -> Positions:
    """Positions that count real tokens from 0; padding repeats a neighbour's, which its mask hides."""
    counted = Positions.counted(0, length, device)
    if padding is None:
        return counted
    ids = ((~padding).cumsum(1) - 1).clamp(min=0)
    return counted if bool(((ids == counted.ids) | padding).all()) else Positions(ids)


def _with_mask(additive: Additive, mask: Tensor | None, placement: Placement) -> Additive | None:
    """Joins fairseq's attn_mask to what the placement masks and adds."""
    if mask is None:
        return additive
    if placement.uses("attend", 0):
        raise PositionError("attn_mask cannot reach a method with a kernel of its own; site='decoder' is causal by itself")
    return additive.joined(mask)

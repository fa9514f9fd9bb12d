"""Multi-head attention with positions: one path for training, evaluation and decoding (torch only)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..contract import AttentionContext
from ..ops.biased import BiasedAttention, merged, worthwhile
from ..ops.precision import widen
from .placement import Additive, Placement

#: hooks that the fused kernel cannot express
_EXPLICIT = ("rescale", "content_values")


class Attention(nn.Module):
    """Projections of a multi-head attention, named and initialised as fairseq's; positions come with each call.

    Shapes: query [B, T, C], key [B, S, C'] -> output [B, T, C] and, where asked for, weights [B, H, T, S].
    Cost: no tensor larger than [B, H, T, S], and not even that one while nothing but a bias is added to the scores.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, projections: frozenset[str], key_dim: int | None = None, dropout: float = 0.0
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        self.num_heads, self.dropout, self.keeps_dropout = num_heads, dropout, False
        key_dim = embed_dim if key_dim is None else key_dim
        widths = {"query": embed_dim, "key": key_dim, "value": key_dim}
        for name, width in widths.items():
            projection = nn.Linear(width, embed_dim) if name in projections else None
            if projection is not None:  # fairseq's choice for projections of equal width, and for others
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5 if key_dim == embed_dim else 1.0)
            self.register_module(f"{name[0]}_proj", projection)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        placement: Placement,
        ctx: AttentionContext,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        additive: Additive | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends; values are made from the keys unless given, and `additive` is what `placement.prepare` made for this layer.

        Methods with a kernel of their own have no weights.
        """
        ctx = ctx.at(inputs=(query, key), project=self.project_one)
        q, k, v = self.project(placement, ctx, query, key, key if value is None else value)
        if placement.uses("attend", ctx.layer):
            ((method, here),) = placement.using("attend", ctx)
            out, weights = method.attend(q, k, v, here), None
        else:
            additive = placement.additive(ctx) if additive is None else additive
            explicit = need_weights or any(placement.uses(hook, ctx.layer) for hook in _EXPLICIT)
            kernel = self.explicit if explicit else self.fused
            out, weights = kernel(placement, ctx, q, k, v, additive)
            if additive.blind is not None:
                out = out.masked_fill(additive.blind, 0.0)
        # [B, H, T, D] -> [B, T, C]
        return self.out_proj(out.transpose(1, 2).flatten(2)), weights

    def project(
        self, placement: Placement, ctx: AttentionContext, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and keys and values of all steps so far, after their hooks: [B, H, T, D], [B, H, S, D] twice."""
        x = placement.through("query_input", query, ctx.queries, ctx=ctx)
        q = self._heads(self.q_proj, x)
        q = placement.through("rotate_query", q, ctx.queries, ctx=ctx)
        state = ctx.state
        if state is not None and ctx.site == "cross" and state.get("key") is not None:
            return q, state.get("key"), state.get("value")
        at = ctx.queries if state is not None and ctx.site != "cross" else ctx.keys  # of the keys that are new
        k = self._heads(self.k_proj, placement.through("key_input", key, at, ctx=ctx))
        k = placement.through("rotate_key", k, at, ctx=ctx)
        v = self._heads(self.v_proj, placement.through("value_input", value, at, ctx=ctx))
        if state is not None and (ctx.site == "cross" or placement.keeps_keys(ctx.layer)):
            if ctx.site != "cross" and state.get("key") is not None:
                k = torch.cat([state.get("key"), k], dim=2)
                v = torch.cat([state.get("value"), v], dim=2)
            state.keep("key", k)
            state.keep("value", v)
        return q, k, v

    def project_one(self, which: str, x: Tensor) -> Tensor:
        """[..., T, C] -> [..., H, T, D] by the projection of queries or keys, for vectors that are neither."""
        return self._heads({"query": self.q_proj, "key": self.k_proj}[which], x)

    def _heads(self, projection: nn.Linear | None, x: Tensor) -> Tensor:
        x = x if projection is None else projection(x)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)  # [B, T, C] -> [B, H, T, D]

    def fused(
        self, placement: Placement, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, additive: Additive
    ) -> tuple[Tensor, None]:
        """torch's scaled_dot_product_attention, with everything additive merged into its mask."""
        bias, allowed = additive.bias, additive.allowed
        content = placement.total("content_scores", q, k, ctx=ctx)
        if content is not None:
            bias = content if bias is None else content + bias
            allowed = torch.ones_like(content[:1, :1], dtype=torch.bool).tril() if additive.causal else allowed
        logits = additive.logits if content is None else merged(bias, allowed)
        if logits is not None and logits.dtype not in (torch.bool, q.dtype):
            logits = logits.to(q.dtype)
        dropout = self.dropout if self.training or self.keeps_dropout else 0.0
        causal, scale = ctx.causal and q.size(2) == k.size(2), placement.scale(ctx.layer)
        if bias is not None and not dropout and worthwhile(q, k, bias, causal):
            return BiasedAttention.apply(q, k, v, bias.to(q.dtype), allowed, logits.detach(), causal, scale), None
        causal = causal and logits is None
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=logits, dropout_p=dropout, is_causal=causal, scale=scale)
        return out, None

    def explicit(
        self, placement: Placement, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, additive: Additive
    ) -> tuple[Tensor, Tensor]:
        """The same step by step, for methods that change scores or values and for callers that want the weights."""
        scores = self.logits(placement, ctx, q, k, additive.bias)
        allowed = additive.allowed
        if additive.causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if allowed is not None:
            scores = scores.where(allowed, float("-inf"))
        weights = scores.softmax(-1)
        if additive.blind is not None:
            weights = weights.masked_fill(additive.blind, 0.0)
        probs = F.dropout(weights.to(v.dtype), self.dropout, self.training or self.keeps_dropout)
        out = probs @ v  # [B, H, T, S], [B, H, S, D] -> [B, H, T, D]
        values = placement.total("content_values", probs, v, ctx=ctx)
        return (out if values is None else out + values), weights

    def make_generation_fast_(
        self, retain_dropout: bool = False, retain_dropout_modules: list[str] | None = None, **kwargs: Any
    ) -> None:
        """fairseq's --retain-dropout and --retain-dropout-modules."""
        self.keeps_dropout = retain_dropout and (retain_dropout_modules is None or "Attention" in retain_dropout_modules)

    @staticmethod
    def logits(placement: Placement, ctx: AttentionContext, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """Logits after scaling and before any mask, in float32 or wider: [B, H, T, S]."""
        scores = (q * placement.scale(ctx.layer)) @ k.transpose(-1, -2)
        scores = placement.through("rescale", scores, q, k, ctx=ctx)
        content = placement.total("content_scores", q, k, ctx=ctx)
        if content is not None:
            scores = scores + content
        scores = widen(scores)
        return scores if bias is None else scores + bias

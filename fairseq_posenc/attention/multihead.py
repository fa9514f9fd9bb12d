"""Multi-head attention with positions: one path for training, evaluation and decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..core import AttentionContext
from ..core.export import refuse_script
from ..core.hooks import NEEDS_SCORES
from ..ops import devices
from ..ops.bias_channels import with_channels
from ..ops.kernels.blocked_bias import BiasedAttention, lacks_fused_gradient, merged, plain_attention, prefer_blocked
from ..ops.precision import at_least_float32
from .mask import AttentionMask, aligned
from .site_positions import SitePositions

#: Long sentences are computed in blocks of queries, to save memory. The first two constants are the number of scores per block
#: on a CPU and on an accelerator. Blocks are used if the batch has enough scores for _FEWEST_BLOCKS
#: blocks, and each head has at least _LONG scores per sentence. On a CPU, the fused kernel of such sentences stores no scores
_BLOCK_ON_CPU, _BLOCK, _FEWEST_BLOCKS, _LONG = 2**19, 2**25, 16, 2**18
#: narrowest width of queries and keys that torch's memory-efficient kernel takes without padding
_NARROWEST = 8


class Attention(nn.Module):
    """Compute multi-head attention. Projections have fairseq's names and initialisation. The mask is an argument of each call.

    Shapes: query [B, T, C], key [B, S, C'] -> output [B, T, C] and, if requested, weights [B, H, T, S].
    Cost: the largest tensor is [B, H, T, S]. If no weights are requested, this tensor is not stored in two cases. First
        case: the sentences are long, and the methods support blocks. Second case: only a bias is added to the scores. The
        second case has an exception. On a CPU, the gradient of the bias needs this tensor if sentences are short or if
        dropout is used.
    """

    __prepare_scriptable__ = refuse_script
    fairseq_name = "MultiheadAttention"  # the name for --retain-dropout-modules
    k_proj: nn.Linear | None
    v_proj: nn.Linear | None
    q_proj: nn.Linear | None

    def __init__(
        self, embed_dim: int, num_heads: int, projections: frozenset[str], key_dim: int | None = None, dropout: float = 0.0
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim} is not divisible by num_heads={num_heads}")
        self.num_heads, self.dropout, self.retains_dropout = num_heads, dropout, False
        key_dim = embed_dim if key_dim is None else key_dim
        # projections are created and initialised in fairseq's order. Optimizer states, and the random numbers of a seed, depend
        # on this order
        for name, width in {"key": key_dim, "value": key_dim, "query": embed_dim}.items():
            self.register_module(f"{name[0]}_proj", nn.Linear(width, embed_dim) if name in projections else None)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            if projection is not None:  # in fairseq, the gain depends on whether the keys have the width of the queries
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5 if key_dim == embed_dim else 1.0)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        positions: SitePositions,
        ctx: AttentionContext,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: AttentionMask | None = None,
        need_weights: bool = False,
        local: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention. `mask` is the result of `positions.masks` for this layer. By default, the values are the keys.

        `local` is False for a global attention, which ignores the masks that restrict attention to a sentence. Methods that
        override `attend` return no weights.
        """
        dropout = self.dropout if self.training or self.retains_dropout else 0.0
        ctx = ctx.replace(inputs=(query, key), project=self.project_one, dropout=dropout)
        q, k, v = self.project(positions, ctx, query, key, key if value is None else value)
        if positions.uses("attend", ctx.layer):
            ((method, here),) = positions.using("attend", ctx)
            out, weights = method.attend(q, k, v, here), None
        else:
            needs_scores = any(positions.uses(hook, ctx.layer) for hook in NEEDS_SCORES)
            if mask is None or (need_weights and mask.factors is not None):
                mask = positions.mask(ctx, local, factored=not need_weights)
            kernel = self.explicit if need_weights else self.in_blocks if needs_scores else self.fused
            out, weights = kernel(positions, ctx, q, k, v, mask)
            if mask.fully_masked is not None:
                out = out.masked_fill(mask.fully_masked, 0.0)
        return self._merged(out), weights

    def project(
        self, positions: SitePositions, ctx: AttentionContext, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, H, T, D], and keys and values [B, H, S, D], after the hooks `project_input`, `rotate` and `scale`.

        In decoding, the keys and values include all earlier steps. If the hook `attend` is marked as
        recurrent (`core.hooks.recurrent`), the keys and values include only the new steps.
        """
        if query is key and key is value and self._joins_projections(positions, ctx, query):
            q, k, v = map(self._heads, self._projected(self._all_projections, query).chunk(3, -1))
            q = positions.scale_queries(positions.rotate("query", q, ctx.queries, ctx), ctx)
            # a copy of the values, because a view would keep the queries and keys before the rotation in memory
            v = v.clone() if positions.uses("rotate", ctx.layer) else v
            return q, positions.rotate("key", k, ctx.keys, ctx), v
        x = positions.project_input("query", query, ctx.queries, ctx)
        q = self._heads(self._projected(self.q_proj, x))
        q = positions.scale_queries(positions.rotate("query", q, ctx.queries, ctx), ctx)
        state = ctx.state
        if state is not None and ctx.cross and state.get("key") is not None:
            return q, state.get("key"), state.get("value")
        at = ctx.queries if state is not None and not ctx.cross else ctx.keys  # the positions of the new keys
        k = self._heads(self._projected(self.k_proj, positions.project_input("key", key, at, ctx)))
        k = positions.rotate("key", k, at, ctx)
        v = self._heads(self._projected(self.v_proj, positions.project_input("value", value, at, ctx)))
        if state is not None and (ctx.cross or positions.caches_keys(ctx.layer)):
            if not ctx.cross and state.get("key") is not None:
                k = torch.cat([state.get("key"), k], dim=2)
                v = torch.cat([state.get("value"), v], dim=2)
            state.store_per_row("key", k)
            state.store_per_row("value", v)
        return q, k, v

    def project_one(self, which: str, x: Tensor) -> Tensor:
        """Apply the projection of queries or keys to any vectors: [..., T, C] -> [..., H, T, D]."""
        return self._heads(self._projected({"query": self.q_proj, "key": self.k_proj}[which], x))

    def _joins_projections(self, positions: SitePositions, ctx: AttentionContext, x: Tensor) -> bool:
        """Return whether one matrix product computes the queries, keys and values of `x`.

        One product launches fewer kernels in the backward pass. On a CPU, without gradients and in decoding, three products are
        as fast, and need no copy of the weights.
        """
        if devices.on_cpu(x) or not torch.is_grad_enabled() or ctx.state is not None:
            return False
        return not positions.uses("project_input", ctx.layer) and all(map(_is_plain, (self.q_proj, self.k_proj, self.v_proj)))

    def _all_projections(self, x: Tensor) -> Tensor:
        """Compute queries, keys and values in one product: [..., C] -> [..., 3C]."""
        maps = [projection for projection in (self.q_proj, self.k_proj, self.v_proj) if projection is not None]
        return F.linear(x, torch.cat([each.weight for each in maps]), torch.cat([each.bias for each in maps]))

    @staticmethod
    def _projected(projection: Callable[[Tensor], Tensor] | None, x: Tensor) -> Tensor:
        return x if projection is None else projection(x)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)  # [B, T, C] -> [B, H, T, D]

    def _merged(self, out: Tensor) -> Tensor:
        return self.out_proj(out.transpose(1, 2).flatten(2))  # [B, H, T, D] -> [B, T, C]

    def fused(
        self, positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask
    ) -> tuple[Tensor, None]:
        """Compute attention with a fused kernel. The mask of the kernel is the sum of all terms that are added to the scores.

        The kernel is torch's scaled_dot_product_attention. On a CPU, `BiasedAttention` or `plain_attention` is used for some
        biases, because these two functions are faster. If the mask has factors of the bias, they are additional channels of
        queries and keys.
        """
        width = v.size(-1)
        if mask.factors is not None:
            q, k, v = with_channels(q, k, v, mask.channels(q.dtype, ctx.scale))
        bias, allowed = mask.bias, mask.allowed
        content, q = positions.sum_terms("content_scores", q, k, ctx=ctx), positions.scale_product(q, ctx)
        if not devices.on_cpu(q):
            logits = self._added(content, mask, ctx, q)
            causal = mask.causal and logits is None
            out = F.scaled_dot_product_attention(q, k, v, logits, ctx.dropout, causal, scale=ctx.scale)
            return out if mask.factors is None else out[..., :width], None
        logits = mask.logits
        if content is not None:
            bias = content if bias is None else content + bias
            allowed = torch.ones_like(content[:1, :1], dtype=torch.bool).tril() if mask.causal else allowed
            logits = merged(bias, allowed)
        if bias is not None and logits is not None and _may_overflow(ctx, q.dtype):
            bias, allowed = _up_to_zero(logits), None
            logits = bias
        if logits is not None and logits.dtype not in (torch.bool, q.dtype):
            logits = logits.to(q.dtype)
        causal, scale, dropout = ctx.causal and q.size(2) == k.size(2), ctx.scale, ctx.dropout
        if bias is not None and logits is not None and not dropout and prefer_blocked(q, k, bias, causal):
            return BiasedAttention.apply(q, k, v, bias.to(q.dtype), allowed, logits.detach(), causal, scale), None
        if bias is not None and logits is not None and lacks_fused_gradient(q, bias):
            return plain_attention(q, k, v, logits, dropout, scale), None
        causal = causal and logits is None
        missing = q.size(-1) - v.size(-1)
        if missing > 0 and not dropout and q.size(2) * k.size(2) >= _LONG:
            v = F.pad(v, (0, missing))  # torch's fused kernel for CPUs requires values of the width of queries
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=logits, dropout_p=dropout, is_causal=causal, scale=scale)
        return out if out.size(-1) == width else out[..., :width], None

    def _added(self, content: Tensor | None, mask: AttentionMask, ctx: AttentionContext, q: Tensor) -> Tensor | None:
        """Return the sum of `content`, the bias, and -inf for masked keys, in the dtype of `q`.

        When `fused` calls this function, `content` is the sum of the results of the hook `content_scores`, or None. When
        `_explicit_output` calls this function, `content` contains all scores before bias and mask. `_explicit_output` passes
        the values as `q`. This is possible because only the dtype and the device of `q` are used. If `content` is None and
        `mask.causal` is set, the result does not contain the causal mask. The function is called only on accelerators. The rows
        of the result are `aligned`.
        """
        if content is None:
            numbers = self._numbers(mask, ctx, q.dtype)
            return None if numbers is None else aligned(numbers)
        if mask.bias is None:  # adding 0 or -inf is exact, also after the conversion
            content = content.to(q.dtype)
        hidden = self._numbers(mask, ctx, q.dtype, wide=True)
        if mask.causal:
            hidden = self._causal_numbers(ctx, content.size(2), content.size(3), q)
        return aligned((content if hidden is None else content + hidden).to(q.dtype))

    @staticmethod
    def _numbers(mask: AttentionMask, ctx: AttentionContext, dtype: torch.dtype, wide: bool = False) -> Tensor | None:
        """Return the bias with -inf for masked keys, in this dtype. Without a bias, return `mask.numbers(dtype)`.

        If biases could overflow in this dtype, subtract the largest bias of each query from all biases of this query. With
        `wide`, do not convert the bias.
        """
        if mask.bias is None:
            return mask.numbers(dtype)
        too_low = _may_overflow(ctx, dtype)
        numbers = mask.numbers(None if wide or too_low else dtype)
        if numbers is None or not too_low:
            return numbers
        return _up_to_zero(numbers) if wide else _up_to_zero(numbers).to(dtype)

    @staticmethod
    def _causal_numbers(ctx: AttentionContext, queries: int, keys: int, x: Tensor) -> Tensor:
        """Return the causal mask [T, S] of 0 and -inf, computed once for all layers."""

        def make() -> Tensor:
            return torch.full((queries, keys), float("-inf"), dtype=x.dtype, device=x.device).triu(1 + keys - queries)

        return ctx.once(("causal numbers", queries, keys, x.dtype), make)

    def explicit(
        self,
        positions: SitePositions,
        ctx: AttentionContext,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: AttentionMask,
        wide: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Compute scores, softmax and values in separate operations.

        This function is for methods that change scores or values, and for callers that need the weights. `wide` converts the
        scores to float32. On a CPU, the scores are always converted. On an accelerator, the softmax computes in float32 in any
        case.
        """
        allowed, on_cpu = self._allowed(ctx, mask, q, k), devices.on_cpu(q)
        here = ctx.replace(allowed=allowed)
        if wide or on_cpu:
            scores = self.logits(positions, here, q, k, mask.bias if on_cpu else None)
        else:
            scores = self.unmasked(positions, here, q, k)
        if not on_cpu:  # add the bias and the mask as one tensor, so that the gradient needs no additional kernel
            hidden = self._numbers(mask, ctx, scores.dtype)
            if mask.causal:
                hidden = self._causal_numbers(ctx, scores.size(2), scores.size(3), scores)
            scores, allowed = scores if hidden is None else scores + hidden, None
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.softmax(-1)
        if mask.fully_masked is not None:
            weights = weights.masked_fill(mask.fully_masked, 0.0)
        probs = F.dropout(weights.to(v.dtype), ctx.dropout)
        out = probs @ v  # [B, H, T, S], [B, H, S, D] -> [B, H, T, D]
        values = positions.sum_terms("content_values", probs, v, ctx=here)
        return (out if values is None else out + values), weights

    @staticmethod
    def _allowed(ctx: AttentionContext, mask: AttentionMask, q: Tensor, k: Tensor) -> Tensor | None:
        """Return which keys each query may attend to, bool [B or 1, H or 1, T or 1, S], or None for all keys.

        A causal mask is computed once for all layers.
        """
        if not mask.causal:
            return mask.allowed
        queries, keys = q.size(2), k.size(2)
        return ctx.once(
            ("causal", queries, keys),
            lambda: torch.ones(1, 1, queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries),
        )

    def in_blocks(
        self, positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask
    ) -> tuple[Tensor, None]:
        """Compute `explicit` in blocks of queries, if the sentences are long and the methods support blocks.

        Otherwise, compute all queries at once. With blocks, the backward pass computes each block again, so that the scores are
        not stored.
        """
        queries, keys = q.size(2), k.size(2)
        block, scores = _BLOCK_ON_CPU if devices.on_cpu(q) else _BLOCK, q.size(0) * q.size(1) * queries * keys
        if queries * keys < _LONG or scores < _FEWEST_BLOCKS * block or not positions.divisible(ctx):
            return self._explicit_output(positions, ctx, q, k, v, mask), None
        size = max(1, block * queries // scores)
        found = []
        for number, (some, mask_of_some) in enumerate(zip(q.split(size, 2), mask.split(size, queries), strict=True)):
            first, end = number * size, number * size + some.size(2)
            # in causal attention, a block leaves out the keys after its last query, as in decoding
            seen = end if ctx.causal and queries == keys else keys
            here = ctx.part(first, end, seen)
            found.append(checkpoint(self._explicit_output, positions, here, some, k, v, mask_of_some, use_reentrant=False))
        return torch.cat(found, 2), None

    def _explicit_output(
        self, positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask
    ) -> Tensor:
        """Return the output of `explicit` for the keys of the context.

        The keys of the context are the first keys of `k` and `v`. On an accelerator, scaled_dot_product_attention computes the
        softmax of the scores and the sums of values. The mask of this call contains the scores, in the precision of the
        values. The queries and keys of this call are zeros. On a CPU, in decoding, and for methods with the hook
        `content_values`, this function calls `explicit` instead. A decoding step is too short to benefit from
        scaled_dot_product_attention.
        """
        seen = ctx.keys.ids.size(1)
        if seen < k.size(2):
            k, v, mask = k[:, :, :seen], v[:, :, :seen], mask.up_to(seen)
        if devices.on_cpu(q) or ctx.state is not None or positions.uses("content_values", ctx.layer):
            return self.explicit(positions, ctx, q, k, v, mask, wide=False)[0]
        scores = self._added(self.unmasked(positions, ctx.replace(allowed=self._allowed(ctx, mask, q, k)), q, k), mask, ctx, v)
        zeros = [self._zeros(ctx, x.shape[:3], v) for x in (q, k)]
        return F.scaled_dot_product_attention(zeros[0], zeros[1], v, scores, ctx.dropout)

    @staticmethod
    def _zeros(ctx: AttentionContext, shape: torch.Size, x: Tensor) -> Tensor:
        """Return the narrowest vectors of zeros that the fused kernel supports, computed once for all layers."""
        return ctx.once(("zeros", shape, x.dtype), lambda: x.new_zeros(*shape, _NARROWEST))

    def make_generation_fast_(
        self, retain_dropout: bool = False, retain_dropout_modules: list[str] | None = None, **kwargs: Any
    ) -> None:
        """Apply fairseq's options --retain-dropout and --retain-dropout-modules."""
        self.retains_dropout = retain_dropout and (retain_dropout_modules is None or self.fairseq_name in retain_dropout_modules)

    @staticmethod
    def logits(positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """Return the scaled scores before any mask, in float32 or wider: [B, H, T, S]."""
        scores = at_least_float32(Attention.unmasked(positions, ctx, q, k))
        return scores if bias is None else scores + bias

    @staticmethod
    def unmasked(positions: SitePositions, ctx: AttentionContext, q: Tensor, k: Tensor) -> Tensor:
        """Return the scaled scores before any bias and mask: [B, H, T, S]. The scores are not converted to float32."""
        scaled = positions.scale_product(q, ctx)
        unread = any(method.rescale_reads == "vectors" for method, _ in positions.using("rescale", ctx))
        scores = q.new_empty(0) if unread else (scaled * ctx.scale) @ k.transpose(-1, -2)
        scores = positions.apply_chain("rescale", scores, scaled, k, ctx=ctx)
        content = positions.sum_terms("content_scores", q, k, ctx=ctx)
        if content is not None:
            scores = scores + content
        return scores


def _is_plain(projection: nn.Linear | None) -> bool:
    """Return whether the projection is PyTorch's linear map with a bias, and has no hooks."""
    if type(projection) is not nn.Linear or projection.bias is None:
        return False
    forward, backward = (projection._forward_hooks, projection._forward_pre_hooks), projection._backward_hooks
    return not (any(forward) or backward or projection._backward_pre_hooks)


def _may_overflow(ctx: AttentionContext, dtype: torch.dtype) -> bool:
    """Return whether the biases of all keys of a query can be below the smallest number of this dtype.

    The smallest number of float16 is -65504. In self-attention, the bias of the nearest key cannot be below this number,
    because the distance to this key is small.
    """
    return dtype == torch.float16 and ctx.cross


def _up_to_zero(numbers: Tensor) -> Tensor:
    """Subtract the largest number of each query from all numbers of this query.

    The caller adds the numbers to the scores. The subtraction therefore does not change the softmax.
    """
    return numbers - numbers.amax(-1, keepdim=True).detach()

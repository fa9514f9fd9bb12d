"""The order of tokens, the keys at the queries, and causal convolutions of a sequence or of one decoding step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import AttentionContext


def order(ctx: AttentionContext) -> tuple[Tensor, Tensor]:
    """Return numbers with the order of queries and keys: [B or 1, T] and [B or 1, S]. Larger numbers are later in the sentence.

    In self-attention, the numbers are the columns of the keys. Position ids have another order in two cases, both in training:
    the last word and the padding after it can have the same position, and `cape` can exchange neighbouring positions. If all
    sentences have the same consecutive positions, or if the queries are not consecutive keys, the numbers are the position ids.
    """
    first, queries, keys = ctx.first_query, ctx.queries.ids, ctx.keys.ids
    counted = ctx.queries.start is not None and ctx.keys.start is not None
    if first is None or counted:
        return queries, keys
    columns = torch.arange(keys.size(1), device=keys.device).unsqueeze(0)
    return columns[:, first : first + queries.size(1)], columns


def at_queries(x: Tensor, ctx: AttentionContext) -> Tensor:
    """Select the entries at the tokens of the queries: [B, H, S, ...] -> [B, H, T, ...].

    `x` has one entry per key.
    """
    queries, keys, first = ctx.queries, ctx.keys, ctx.first_query
    if first is not None:
        return x[:, :, first : first + queries.ids.size(1)]
    same = queries.ids.unsqueeze(-1) == keys.ids.unsqueeze(-2)  # [B or 1, T, S]
    # use the last key with the position of the query, because padding on the left has the same position as the first token
    columns = (same * torch.arange(1, same.size(-1) + 1, device=same.device)).argmax(-1)
    index = columns[:, None].view(columns.size(0), 1, -1, *[1] * (x.dim() - 3))  # [B or 1, T] -> [B or 1, 1, T, ...]
    return x.gather(2, index.expand(*x.shape[:2], -1, *x.shape[3:]))


def without_padding(x: Tensor, ctx: AttentionContext) -> Tensor:
    """Set the values at padding to 0: [B, N, C] -> same. The N values of a sentence belong to the last N keys."""
    if ctx.key_padding is None:
        return x
    return x.masked_fill(ctx.key_padding[:, -x.size(1) :, None], 0.0)


def causal_convolution(x: Tensor, weight: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Apply a causal convolution to every channel. Its last tap reads the current token.

    Args:
        x: [B, N, C], the new tokens.
        weight: [C, taps].
        before: [B, taps - 1, C], the tokens before the new tokens. None at the start of a sentence, where zeros are read.

    Returns:
        The result [B, N, C], and the last tokens [B, taps - 1, C], which are `before` in the next step.
    """
    taps = weight.size(-1)
    x = F.pad(x, (0, 0, taps - 1, 0)) if before is None else torch.cat([before.to(x.dtype), x], 1)
    return F.conv1d(x.mT, weight.unsqueeze(1), groups=x.size(-1)).mT, x[:, x.size(1) - taps + 1 :]

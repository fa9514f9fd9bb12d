"""Encoder and decoder layers, batch first, with fairseq's parameter names."""

from __future__ import annotations

from typing import Any

from fairseq import utils
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ..contract import AttentionContext
from .attention import Attention
from .placement import Additive, Placement


class _Layer(nn.Module):
    """What both kinds of layer have: a self-attention, a feed-forward network, and norms before or after."""

    def __init__(self, cfg: Any, side: Any, projections: frozenset[str]):
        super().__init__()
        width = side.embed_dim
        self.normalize_before = side.normalize_before
        self.self_attn = Attention(width, side.attention_heads, projections, dropout=cfg.attention_dropout)
        self.self_attn_layer_norm = LayerNorm(width)
        self.fc1 = nn.Linear(width, side.ffn_embed_dim)
        self.fc2 = nn.Linear(side.ffn_embed_dim, width)
        self.final_layer_norm = LayerNorm(width)
        self.activation_fn = utils.get_activation_fn(cfg.activation_fn)
        name = type(self).__name__
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=name)
        self.activation_dropout_module = FairseqDropout(float(cfg.activation_dropout or cfg.relu_dropout or 0), module_name=name)

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.normalize_before else x

    def after(self, norm: nn.Module, x: Tensor, residual: Tensor) -> Tensor:
        x = residual + self.dropout_module(x)
        return x if self.normalize_before else norm(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.activation_fn(self.fc1(self.before(self.final_layer_norm, x)))
        return self.after(self.final_layer_norm, self.fc2(self.activation_dropout_module(hidden)), x)


class EncoderLayer(_Layer):
    """Self-attention and feed-forward network: [B, S, C] -> [B, S, C]."""

    def __init__(self, cfg: Any, projections: frozenset[str]):
        super().__init__(cfg, cfg.encoder, projections)

    def forward(self, x: Tensor, placement: Placement, ctx: AttentionContext, additive: Additive | None) -> Tensor:
        normed = self.before(self.self_attn_layer_norm, x)
        out, _ = self.self_attn(placement, ctx, normed, normed, additive=additive)
        return self.feed_forward(self.after(self.self_attn_layer_norm, out, x))


class DecoderLayer(_Layer):
    """Self-attention, attention to the source and feed-forward network: [B, T, C] -> [B, T, C]."""

    def __init__(self, cfg: Any, projections: frozenset[str], cross_projections: frozenset[str]):
        super().__init__(cfg, cfg.decoder, projections)
        width = cfg.decoder.embed_dim
        self.encoder_attn = Attention(
            width, cfg.decoder.attention_heads, cross_projections, cfg.encoder.embed_dim, cfg.attention_dropout
        )
        self.encoder_attn_layer_norm = LayerNorm(width)

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        placements: tuple[Placement, Placement],
        contexts: tuple[AttentionContext, AttentionContext],
        additives: tuple[Additive | None, Additive | None],
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The weights are those of the attention to the source, [B, H, T, S], or None."""
        normed = self.before(self.self_attn_layer_norm, x)
        out, _ = self.self_attn(placements[0], contexts[0], normed, normed, additive=additives[0])
        x = self.after(self.self_attn_layer_norm, out, x)
        # [B * beam, 1, C] -> [B, beam, C] where the beams of a sentence are its queries, else unchanged
        normed = self.before(self.encoder_attn_layer_norm, x).reshape(source.size(0), -1, x.size(-1))
        out, weights = self.encoder_attn(
            placements[1], contexts[1], normed, source, additive=additives[1], need_weights=need_weights
        )
        return self.feed_forward(self.after(self.encoder_attn_layer_norm, out.view_as(x), x)), weights

"""Encoder and decoder layers. Tensors are batch-first, and parameters have fairseq's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ....attention.mask import AttentionMask
from ....attention.multihead import Attention
from ....attention.site_positions import SitePositions
from ....core import AttentionContext
from .feed_forward import linear_or_convolution


@dataclass(frozen=True)
class LayerOptions:
    """Options of a layer that do not concern position methods.

    residual: whether the self-attention has a residual connection. Liu et al. (2021a) remove it in a middle encoder layer.
    ffn_kernel: number of positions that each layer of the feed-forward network reads (Liu et al. 2021b).
    causal: whether the feed-forward network reads only the current and earlier positions.
    global_attention: whether the self-attention is mixed with a second, global attention (Bao et al. 2021).
    global_cross: whether the cross-attention is mixed with a second, global attention (Bao et al. 2021).

    Masks that restrict attention to one sentence apply only to the first attention, which is called local attention. These
    masks do not apply to a global attention.
    """

    residual: bool = True
    ffn_kernel: int = 1
    causal: bool = False
    global_attention: bool = False
    global_cross: bool = False


@dataclass(frozen=True)
class Masks:
    """The masks of the local and the global attention of a layer.

    None means that the attention computes its own mask, or that the layer does not have this attention.
    """

    local: AttentionMask | None = None
    whole: AttentionMask | None = None


class Gate(nn.Module):
    """Mix the outputs of two attentions. The gate has one weight per channel.

    Equation: o = g o_local + (1 - g) o_global, g = sigmoid(W [o_local; o_global] + b); Bao et al. (2021).
    Shapes: [B, T, C] twice -> [B, T, C].
    """

    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(2 * width, width)
        nn.init.xavier_uniform_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        gate = self.proj(torch.cat([local, whole], -1)).sigmoid()
        return gate * local + (1 - gate) * whole


class _Layer(nn.Module):
    """Base class of encoder and decoder layers: self-attention, feed-forward network, and layer norms before or after them.

    Three class attributes are the classes of the modules. Subclasses can replace them. `fairseq_name` is the name of the layer
    for --retain-dropout-modules, from the classes of fairseq.
    """

    fairseq_name: str
    attention, norm, linear = Attention, staticmethod(LayerNorm), staticmethod(linear_or_convolution)

    def __init__(self, cfg: Any, side: Any, projections: frozenset[str], options: LayerOptions):
        super().__init__()
        width = side.embed_dim
        self.options = options
        self.normalize_before = side.normalize_before
        self.self_attn = self.attention(width, side.attention_heads, projections, dropout=cfg.attention_dropout)
        if options.global_attention:
            self.self_attn_global = self.attention(width, side.attention_heads, projections, dropout=cfg.attention_dropout)
            self.self_attn_gate = Gate(width)
        self.self_attn_layer_norm = self.norm(width)
        self.activation_fn = utils.get_activation_fn(cfg.activation_fn)
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=self.fairseq_name)
        activation_dropout = float(cfg.activation_dropout or cfg.relu_dropout or 0)
        self.activation_dropout_module = FairseqDropout(activation_dropout, module_name=self.fairseq_name)

    def build_feed_forward(self, side: Any) -> None:
        """Build the feed-forward network. Call this after all attentions are built.

        fairseq's optimizer state depends on the order of the parameters.
        """
        kernel, causal = self.options.ffn_kernel, self.options.causal
        self.fc1 = self.linear(side.embed_dim, side.ffn_embed_dim, kernel, causal)
        self.fc2 = self.linear(side.ffn_embed_dim, side.embed_dim, kernel, causal)
        self.final_layer_norm = self.norm(side.embed_dim)

    def attend(
        self,
        name: str,
        positions: SitePositions,
        ctx: AttentionContext,
        query: Tensor,
        key: Tensor,
        masks: Masks,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output [B, T, C] and the weights of the attention with this name.

        If the layer also has a global attention with this name, a gate mixes the outputs of both attentions. The returned
        weights are always the weights of the local attention.
        """
        out, weights = getattr(self, name)(positions, ctx, query, key, mask=masks.local, need_weights=need_weights)
        if hasattr(self, f"{name}_global"):
            state = None if ctx.state is None else ctx.state.within("global")
            whole = getattr(self, f"{name}_global")
            other, _ = whole(positions, ctx.replace(state=state), query, key, mask=masks.whole, local=False)
            out = getattr(self, f"{name}_gate")(out, other)
        return out, weights

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.normalize_before else x

    def after(self, norm: nn.Module, x: Tensor, residual: Tensor | None) -> Tensor:
        x = self.dropout_module(x)
        x = x if residual is None else residual + x
        return x if self.normalize_before else norm(x)

    def feed_forward(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        hidden = self.activation_fn(self.fc1(self.before(self.final_layer_norm, x), ctx, "fc1"))
        return self.after(self.final_layer_norm, self.fc2(self.activation_dropout_module(hidden), ctx, "fc2"), x)


class EncoderLayer(_Layer):
    """Self-attention and feed-forward network: [B, S, C] -> [B, S, C]."""

    fairseq_name = "TransformerEncoderLayerBase"

    def __init__(self, cfg: Any, projections: frozenset[str], options: LayerOptions):
        super().__init__(cfg, cfg.encoder, projections, options)
        self.build_feed_forward(cfg.encoder)

    def forward(self, x: Tensor, positions: SitePositions, ctx: AttentionContext, masks: Masks) -> Tensor:
        normed = self.before(self.self_attn_layer_norm, x)
        out, _ = self.attend("self_attn", positions, ctx, normed, normed, masks)
        residual = x if self.options.residual else None
        return self.feed_forward(self.after(self.self_attn_layer_norm, out, residual), ctx)


class DecoderLayer(_Layer):
    """Self-attention, cross-attention and feed-forward network: [B, T, C] -> [B, T, C]."""

    fairseq_name = "TransformerDecoderLayerBase"

    def __init__(self, cfg: Any, projections: frozenset[str], cross_projections: frozenset[str], options: LayerOptions):
        super().__init__(cfg, cfg.decoder, projections, options)
        width = cfg.decoder.embed_dim
        cross = width, cfg.decoder.attention_heads, cross_projections, cfg.encoder.embed_dim, cfg.attention_dropout
        self.encoder_attn = self.attention(*cross)
        if options.global_cross:
            self.encoder_attn_global = self.attention(*cross)
            self.encoder_attn_gate = Gate(width)
        self.encoder_attn_layer_norm = self.norm(width)
        self.build_feed_forward(cfg.decoder)

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        positions: tuple[SitePositions, SitePositions],
        contexts: tuple[AttentionContext, AttentionContext],
        masks: tuple[Masks, Masks],
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output [B, T, C], and the weights of the cross-attention [B, H, T, S] or None."""
        normed = self.before(self.self_attn_layer_norm, x)
        out, _ = self.attend("self_attn", positions[0], contexts[0], normed, normed, masks[0])
        x = self.after(self.self_attn_layer_norm, out, x)
        # [B * beam, 1, C] -> [B, beam, C] if the beams of a sentence are queries of one batch row, otherwise unchanged
        normed = self.before(self.encoder_attn_layer_norm, x).reshape(source.size(0), -1, x.size(-1))
        out, weights = self.attend("encoder_attn", positions[1], contexts[1], normed, source, masks[1], need_weights)
        return self.feed_forward(self.after(self.encoder_attn_layer_norm, out.view_as(x), x), contexts[0]), weights

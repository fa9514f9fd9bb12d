"""The Transformer decoder. Teacher forcing and step-by-step decoding run the same code."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....core import AttentionContext, ForwardStore, Positions, SideInputs, State
from ....core.side import declared_by
from ..layers.transformer import DecoderLayer, LayerOptions
from .encoder import global_layers, is_global, unroll
from .stack import Stack


class Decoder(Stack, FairseqIncrementalDecoder):
    """A Transformer decoder with position methods in self-attention and in cross-attention.

    Shapes: prev_output_tokens [B, T], padded on the right -> logits [B, T, V], and fairseq's dictionary of additional outputs.
    """

    layer = DecoderLayer
    fairseq_name = "TransformerDecoder"
    layer_norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    first_version_with_final_norm = 3

    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, positions: SitePositions, cross_positions: SitePositions
    ):
        super().__init__(dictionary)
        self.side_inputs = declared_by([method.card for at in (positions, cross_positions) for method in at.methods])
        global_cross = getattr(cfg, "cross_global_layers", None) or 0
        #: number of layers with a global attention, for self-attention and for cross-attention. Only the last layers have one
        self.global_layers = global_layers(cfg.decoder), global_cross
        self.build_stack(
            cfg,
            cfg.decoder,
            embed_tokens,
            positions,
            lambda layer: self.layer(
                cfg,
                positions.projections(layer),
                cross_positions.projections(layer),
                LayerOptions(
                    ffn_kernel=getattr(cfg.decoder, "ffn_kernel", None) or 1,
                    causal=positions.dims.causal,
                    global_attention=is_global(cfg.decoder, cfg.decoder.layers, layer),
                    global_cross=layer is not None and layer >= cfg.decoder.layers - global_cross,
                ),
            ),
            cfg.tie_decoder_layers,
        )
        self.cross_position = cross_positions
        final_norm = cfg.decoder.normalize_before and not cfg.no_decoder_final_norm
        self.layer_norm = self.norm(cfg.decoder.embed_dim) if final_norm else None
        self.output_projection = nn.Linear(cfg.decoder.embed_dim, len(dictionary), bias=False)
        if cfg.share_decoder_input_output_embed:
            self.output_projection.weight = self.embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=cfg.decoder.embed_dim**-0.5)
        self.max_target_positions = cfg.max_target_positions
        self.need_attn = True
        self.beam_size = 1

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict | None = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        x, extra = self.extract_features(
            prev_output_tokens, encoder_out, incremental_state, full_context_alignment, alignment_layer, alignment_heads
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        vectors: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return features [B, T, C], and a dictionary. Its list `attn` contains the weights of the alignment layer.

        Without weights, `attn` is None, because fairseq's ensembles skip only this value. The columns of the weights [B, T, S]
        have the same order as the source tokens that the encoder received, including left padding. With an incremental state,
        only the last token is read, and T is 1. If `vectors` [B, T, C] are given, they replace the embeddings.
        """
        state = None if incremental_state is None else State(incremental_state)
        own, cross = self._contexts(prev_output_tokens, encoder_out, state, full_context_alignment)
        tokens = prev_output_tokens if state is None else prev_output_tokens[:, -1:]
        source = encoder_out["encoder_out"][0].transpose(0, 1)  # [S, B, C] -> [B, S, C]
        source = source[:: cross.queries.ids.size(1) // own.queries.ids.size(1)]
        wanted = alignment_layer is not None or alignment_heads is not None or (self.need_attn and not self.training)
        alignment_layer = self.num_layers - 1 if alignment_layer is None else alignment_layer

        x, _ = self.embed(tokens, own, vectors)
        positions = (self.position, self.cross_position)
        masks = [self.masks(at, ctx, count) for at, ctx, count in zip(positions, (own, cross), self.global_layers)]
        states, weights = [x.transpose(0, 1)], None  # [B, T, C] -> [T, B, C]
        counts_targets = self.halting is not None and vectors is None
        pondering = self.ponders(x, self.without_target(tokens) if counts_targets else tokens.eq(self.padding_idx))
        for index, layer in self.active_layers():
            contexts = tuple(
                at.at_layer(ctx, index).replace(state=_within(ctx.state, str(index))) for at, ctx in zip(positions, (own, cross))
            )
            given, x = x, self.position.apply_chain("before_layer", x, ctx=contexts[0])
            x = x if pondering is None else pondering.before_step(given, x)
            here_masks = (masks[0][index], masks[1][index])
            here = wanted and index == alignment_layer
            x, found = self.run(layer, x, source, positions, contexts, here_masks, here)
            weights = found if here else weights
            x = x if pondering is None else pondering.after_step(x)
            states.append(x.transpose(0, 1))
            if pondering is not None and self.training and not wanted and pondering.finished():
                break
        x = self.output(x, pondering, own, "decoder")
        if weights is not None:
            weights = weights[:, :alignment_heads].mean(1).view(x.size(0), x.size(1), -1)  # [B, H, T, S] -> [B, T, S]
            weights = unroll(weights, encoder_out["source_shift"][0])
        for name, found in _carried(encoder_out, "loss.").items():
            own.add_loss(name, found)
        own.store.means.update(_carried(encoder_out, "mean."))
        attn = None if weights is None else [weights]
        return x, {"attn": attn, "inner_states": states, "losses": own.store.losses, "means": own.store.means}

    def _contexts(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, list[Tensor]], state: State | None, full_context: bool
    ) -> tuple[AttentionContext, AttentionContext]:
        """Return the contexts of self-attention and cross-attention: positions, padding, state and side inputs."""
        length, device = prev_output_tokens.size(1), prev_output_tokens.device
        keys = Positions.counted(0, length, device)
        queries = keys if state is None else Positions.counted(length - 1, 1, device)
        source = Positions.counted(0, encoder_out["encoder_out"][0].size(0), device)
        source_padding = encoder_out["encoder_padding_mask"][0] if encoder_out["encoder_padding_mask"] else None
        beam = self._folded_beam(encoder_out, state)
        if beam > 1:  # the beams of a sentence become queries of one batch row, because their keys and values are the same
            source_padding = None if source_padding is None else source_padding[::beam]
        words = encoder_out["src_tokens"][0] if encoder_out.get("src_tokens") else None  # [B, S]
        side = SideInputs(_carried(encoder_out, "side."), self.side_inputs).up_to(length)
        causal = self.position.dims.causal and not full_context
        # a causal query does not attend to padding on its right
        padding = None if causal else prev_output_tokens.eq(self.padding_idx)
        own = AttentionContext(
            queries, keys, causal=causal, key_padding=padding, tokens=prev_output_tokens, source=words,
            state=_within(state, "self"), side=side, store=ForwardStore(pair_draws=_carried(encoder_out, "pair.")),
        )  # fmt: skip
        cross = AttentionContext(
            queries if beam == 1 else Positions(queries.ids.expand(-1, beam)),
            source,
            cross=True,
            key_padding=source_padding,
            tokens=None if words is None else words[::beam],
            query_tokens=None if words is None else prev_output_tokens,
            source=None if words is None else words[::beam],
            state=None if state is None else state.per_source().within("cross"),
            side=side.every(beam),
            store=own.store,
        )
        rows = prev_output_tokens.size(0)
        return self.position.begin(own, rows), self.cross_position.begin(cross, rows // beam)

    def _folded_beam(self, encoder_out: dict[str, list[Tensor]], state: State | None) -> int:
        """Return the beam size if each group of `beam_size` consecutive rows has the same source, otherwise 1.

        Rows are compared once per batch. Without an incremental state, the result is 1.
        """
        if state is None or self.beam_size == 1:
            return 1
        known = state.get("beam")
        if known is None:
            source = encoder_out["encoder_out"][0]  # [S, B, C]
            grouped = source.size(1) % self.beam_size == 0 and torch.equal(
                source, source[:, :: self.beam_size].repeat_interleave(self.beam_size, 1)
            )
            known = state.store_shared("beam", torch.tensor(self.beam_size if grouped else 1))
        return int(known)

    def set_beam_size(self, beam_size: int) -> None:
        self.beam_size = beam_size

    def output_layer(self, features: Tensor) -> Tensor:
        return self.output_projection(features)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Also add the output projection, which checkpoints of stock fairseq before version 0.10 lack."""
        super().upgrade_state_dict_named(state_dict, name)
        shared = self.output_projection.weight is self.embed_tokens.weight
        key, old = f"{name}.output_projection.weight", f"{name}.embed_tokens.weight" if shared else f"{name}.embed_out"
        if key not in state_dict and old in state_dict:
            state_dict[key] = state_dict[old] if shared else state_dict.pop(old)

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        state = State(incremental_state)
        beam = state.get("beam")
        state.reorder(new_order, 1 if beam is None else int(beam))

    def reorder_incremental_state_scripting(self, incremental_state: dict, new_order: Tensor) -> None:
        """Reorder the state of this module.

        fairseq's recursion over all modules is not needed, because no other module has a state.
        """
        self.reorder_incremental_state(incremental_state, new_order)

    def without_target(self, tokens: Tensor) -> Tensor:
        """Return bool [B, T], True at padding, and at the last </s> of `prev_output_tokens`.

        prev_output_tokens begin with </s>. With --num-batch-buckets, sentences that are shorter than their bucket also end with
        </s>, which has no target.
        """
        padding = tokens.eq(self.padding_idx)
        last = (~padding).sum(1, keepdim=True) - 1  # column of the last token, [B, 1]
        columns = torch.arange(tokens.size(1), device=tokens.device)
        return padding | (tokens.eq(self.dictionary.eos()) & columns.eq(last) & last.gt(0))

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        self.need_attn = need_attn

    def max_positions(self) -> int:
        return int(min(self.max_target_positions, self.position.limit, self.cross_position.limit))


def _within(state: State | None, scope: str) -> State | None:
    return None if state is None else state.within(scope)


def _carried(encoder_out: dict[str, list[Tensor]], kind: str) -> dict[str, Tensor]:
    """Return the tensors in the encoder output whose names begin with `kind`. The names in the result lack this prefix."""
    return {name.removeprefix(kind): tensors[0] for name, tensors in encoder_out.items() if name.startswith(kind)}

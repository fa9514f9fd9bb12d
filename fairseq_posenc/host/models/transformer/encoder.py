"""The Transformer encoder.

The encoder first moves left padding of each sentence to the right. In all methods, the column of a token is then its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....core import AttentionContext, Positions, SideInputs
from ....ops import devices
from ..layers.length_predictor import LengthPredictor
from ..layers.transformer import EncoderLayer, LayerOptions
from .shuffle import WordShuffle
from .stack import Stack


def roll(tokens: Tensor, padding_idx: int) -> tuple[Tensor, Tensor]:
    """Move left padding to the right: tokens [B, S] -> moved tokens [B, S], and the number of columns of left padding [B, 1]."""
    shift = (tokens.ne(padding_idx).cumsum(1) == 0).sum(1, keepdim=True)
    columns = torch.arange(tokens.size(1), device=tokens.device)
    return tokens.gather(1, (columns + shift) % tokens.size(1)), shift


def unroll(weights: Tensor, shift: Tensor) -> Tensor:
    """Undo `roll` for the columns of attention weights [B, T, S]."""
    columns = torch.arange(weights.size(-1), device=weights.device)
    index = (columns - shift) % weights.size(-1)  # [B, S]
    return weights.gather(-1, index.unsqueeze(1).expand_as(weights))


def _options(side: Any, layer: int | None) -> LayerOptions:
    """Return the options of one layer. If layers are tied, `layer` is None."""
    dropped = getattr(side, "drop_residual", None)
    return LayerOptions(
        residual=dropped is None or dropped != layer,
        ffn_kernel=getattr(side, "ffn_kernel", None) or 1,
        global_attention=is_global(side, side.layers, layer),
    )


def is_global(options: Any, layers: int, layer: int | None) -> bool:
    """Return whether a layer has a global attention. Only the last layers have a global attention.

    A global attention is a second attention without the masks that restrict attention to one sentence.
    """
    return layer is not None and layer >= layers - global_layers(options)


def global_layers(options: Any) -> int:
    """Return the number of layers with a global attention. Without --*-global-layers, this number is 0."""
    return getattr(options, "global_layers", None) or 0


def side_outputs(side_inputs: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """Return these side inputs as entries of the encoder output, which the decoder reads."""
    return {f"side.{name}": [tensor] for name, tensor in side_inputs.items()}


class Encoder(Stack, FairseqEncoder):
    """A Transformer encoder with position methods: tokens [B, S], padded on either side -> fairseq's dictionary of outputs.

    All outputs are padded on the right. `source_shift` [B, 1] is the number of columns of left padding, for alignments.
    """

    layer = EncoderLayer
    fairseq_name = "TransformerEncoder"
    layer_norms = ("self_attn_layer_norm", "final_layer_norm")
    first_version_with_final_norm = 2

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, positions: SitePositions):
        super().__init__(dictionary)
        self.build_stack(
            cfg,
            cfg.encoder,
            embed_tokens,
            positions,
            lambda layer: self.layer(cfg, positions.projections(layer), _options(cfg.encoder, layer)),
            cfg.tie_encoder_layers,
        )
        self.layer_norm = self.norm(cfg.encoder.embed_dim) if cfg.encoder.normalize_before else None
        shuffled = getattr(cfg.encoder, "shuffle_words", None)
        self.shuffle = WordShuffle(dictionary, shuffled) if shuffled else None
        self.max_source_positions = cfg.max_source_positions
        self.global_layers = global_layers(cfg.encoder)
        self.side_inputs = positions.side_inputs  # the model adds the side inputs of its decoder
        weight = getattr(cfg, "length_loss_weight", None)
        stop = bool(getattr(cfg, "length_stop_gradient", False))
        self.length_predictor = LengthPredictor(cfg.encoder.embed_dim, weight, stop) if weight else None

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        side_inputs: Mapping[str, Tensor] | None = None,
    ) -> dict[str, list[Tensor]]:
        """Return the encoder output. `side_inputs` have the same padding as `src_tokens`.

        Methods read the side inputs from the AttentionContext.
        """
        tokens, shift = roll(src_tokens, self.padding_idx)
        tokens = tokens if self.shuffle is None else self.shuffle(tokens)
        side = SideInputs(side_inputs, self.side_inputs).rolled(shift)
        padding = tokens.eq(self.padding_idx)
        # padding.any() waits for the accelerator. If a method also waits in every forward pass, avoid a second wait: treat every
        # batch as padded
        waits = self.position.waits and not devices.on_cpu(tokens)
        padding = padding if waits or padding.any() else None
        at = Positions.counted(0, tokens.size(1), tokens.device)
        ctx = self.position.begin(
            AttentionContext(at, at, key_padding=padding, tokens=tokens, source=tokens, side=side), len(tokens)
        )
        x, embedded = self.embed(tokens, ctx)
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        states = [x] if return_all_hiddens else []
        masks, pondering = self.masks(self.position, ctx, self.global_layers), self.ponders(x, padding)
        for index, layer in self.active_layers():
            here = self.position.at_layer(ctx, index)
            given, x = x, self.position.apply_chain("before_layer", x, ctx=here)
            x = x if pondering is None else pondering.before_step(given, x)
            x = self.run(layer, x, self.position, here, masks[index])
            x = x if pondering is None else pondering.after_step(x)
            if return_all_hiddens:
                states.append(x)
            if pondering is not None and self.training and pondering.finished():
                break
        x = self.output(x, pondering, ctx, "encoder")
        return {
            "encoder_out": [x.transpose(0, 1)],  # [B, S, C] -> [S, B, C], the order of axes in fairseq
            "encoder_padding_mask": [] if padding is None else [padding],  # [B, S]
            "encoder_embedding": [embedded],  # [B, S, C]
            "encoder_states": [state.transpose(0, 1) for state in states],
            "src_tokens": [tokens],  # [B, S]
            "src_lengths": [tokens.ne(self.padding_idx).sum(1, keepdim=True, dtype=torch.int32)],
            "source_shift": [shift],
            **side_outputs(side),
            **{f"loss.{name}": [tensor] for name, tensor in ctx.store.losses.items()},
            **{f"pair.{name}": [tensor] for name, tensor in ctx.store.pair_draws.items()},
            **{f"mean.{name}": [tensor] for name, tensor in ctx.store.means.items()},
        }

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        axes = {"encoder_out": 1, "encoder_states": 1}  # the batch axis of all other tensors is 0
        return {
            name: [tensor.index_select(axes.get(name, 0), new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        return int(min(self.max_source_positions, self.position.limit))

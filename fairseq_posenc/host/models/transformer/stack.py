"""Base class of encoder and decoder: embeddings, layers, tied layers, LayerDrop and activation checkpointing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ....attention.site_positions import SitePositions
from ....core import AttentionContext
from ..layers.halting import Halting, Pondering
from ..layers.transformer import Masks


class Stack(nn.Module):
    """Mixin for encoder and decoder. It builds and runs embeddings and layers.

    The class attributes `layer` and `norm` are the classes of the modules. Subclasses can replace them. `fairseq_name` is the
    name of the stack for --retain-dropout-modules, from the classes of fairseq. `layer_norms` are the layer norms of one layer,
    in the order of their numbers in stock fairseq's first versions. `first_version_with_final_norm` is the first value of the
    entry `version` in checkpoints with a layer norm after the stack.
    """

    layer: type[nn.Module]
    fairseq_name: str
    layer_norms: tuple[str, ...]
    first_version_with_final_norm: int
    layer_norm: nn.Module | None
    norm = staticmethod(LayerNorm)

    def build_stack(
        self,
        cfg: Any,
        side: Any,
        embed_tokens: nn.Embedding,
        positions: SitePositions,
        build_layer: Callable[[int | None], nn.Module],
        tied: bool,
    ) -> None:
        self.register_buffer("version", torch.Tensor([3]))  # fairseq's checkpoints contain this entry
        self.embed_tokens = embed_tokens
        self.padding_idx = embed_tokens.padding_idx
        self.embed_scale = 1.0 if cfg.no_scale_embedding else math.sqrt(side.embed_dim)
        self.position = positions
        self.layernorm_embedding = self.norm(side.embed_dim) if cfg.layernorm_embedding else None
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=self.fairseq_name)
        self.layers = nn.ModuleList(map(build_layer, [None] if tied else range(side.layers)))
        self.num_layers = side.layers
        halting = getattr(side, "halting", None)
        self.halting = Halting(side.embed_dim, halting, cfg.halting_epsilon, cfg.ponder_weight) if halting else None
        self.layerdrop = side.layerdrop
        self.checkpoint_activations = cfg.checkpoint_activations

    def embed(self, tokens: Tensor, ctx: AttentionContext, vectors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the input of the layers and the scaled embeddings, [B, T, C] each.

        If `vectors` are given, they replace the embeddings.
        """
        embedded = self.embed_scale * self.embed_tokens(tokens) if vectors is None else vectors
        x = self.position.embed(self.as_states(embedded), tokens, ctx)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x), embedded

    def as_states(self, embedded: Tensor) -> Tensor:
        """Convert embeddings [B, T, C] to hidden states. Subclasses override this if hidden states have another form."""
        return embedded

    def active_layers(self) -> Iterator[tuple[int, nn.Module]]:
        """Yield the index and the module of every layer that LayerDrop does not skip in this forward pass."""
        drawn = torch.rand(self.num_layers).tolist() if self.training and self.layerdrop > 0 else None
        for index in range(self.num_layers):
            if drawn is None or drawn[index] > self.layerdrop:
                yield index, self.layers[index if len(self.layers) > 1 else 0]

    def masks(self, positions: SitePositions, ctx: AttentionContext, global_layers: int) -> list[Masks]:
        """Return the masks of every layer for one site. The last `global_layers` layers have a global attention."""
        local: list[Any] = positions.masks(ctx)
        first = self.num_layers - global_layers
        whole = positions.masks(ctx, local=False) if global_layers else local
        return [Masks(mask, whole[layer] if layer >= first else None) for layer, mask in enumerate(local)]

    def ponders(self, x: Tensor, padding: Tensor | None) -> Pondering | None:
        """Return the state of adaptive computation time for this forward pass, or None without --*-halting."""
        return None if self.halting is None else Pondering(self.halting, x, padding)

    def output(self, x: Tensor, pondering: Pondering | None, ctx: AttentionContext, side: str) -> Tensor:
        """Return the output of the stack after the last layer, [B, T, C]. `side` is the name of the stack in the log."""
        if pondering is not None:
            x = pondering.output
            pondering.report(ctx, side)
        return x if self.layer_norm is None else self.layer_norm(x)

    def run(self, layer: nn.Module, *args: Any) -> Any:
        """Run a layer. In training with --checkpoint-activations, its activations are recomputed instead of stored."""
        if self.checkpoint_activations and self.training:
            return checkpoint(layer, *args, use_reentrant=False)
        return layer(*args)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Convert the entries of a checkpoint of stock fairseq, also of a version before 2020, to the names of this plugin.

        fairseq calls this function before it loads a state dict. As in stock fairseq, a stack has no final layer norm if the
        checkpoint is of a version without this layer norm.
        """
        for key in [key for key in state_dict if key.startswith(f"{name}.embed_positions.")]:
            tensor = state_dict.pop(key)
            if key.endswith(".weight"):
                state_dict[f"{name}.position.methods.0.weight"] = tensor
        for key in [key for key in state_dict if key.startswith(f"{name}.layers.")]:
            module, merged, kind = key.rpartition(".in_proj_")
            if merged:  # the merged projections of queries, keys and values
                for which, tensor in zip("qkv", torch.atleast_1d(state_dict.pop(key)).chunk(3)):
                    state_dict[f"{module}.{which}_proj.{kind}"] = tensor
            layer, numbered, rest = key.partition(".layer_norms.")
            number, _, kind = rest.partition(".")
            if numbered and number in map(str, range(len(self.layer_norms))):
                state_dict[f"{layer}.{self.layer_norms[int(number)]}.{kind}"] = state_dict.pop(key)
        version = state_dict.get(f"{name}.version")
        old = version is not None and version.numel() == 1 and version.item() < self.first_version_with_final_norm
        if old and f"{name}.layer_norm.weight" not in state_dict:
            self.layer_norm = None

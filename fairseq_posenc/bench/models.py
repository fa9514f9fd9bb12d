"""Stock fairseq's Transformer and ours with one method each, of the same size and over the same words."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import nn

from .. import registry
from ..transformer.architectures import SIZES, stacks

STOCK = "stock"
WORDS = 1000


@dataclass(frozen=True)
class Variant:
    """What a row measures: `specs` of the three sites, or None for stock fairseq."""

    name: str
    specs: dict[str, str] | None

    @classmethod
    def of(cls, spec: str, site: str) -> Variant:
        """The method as its architecture has it, or at one site beside sinusoids."""
        name = registry.parse(spec).parts[0].name
        if site == "model":
            specs = stacks(registry.card(name)) if spec == name else {"encoder": spec, "decoder": spec, "cross": "none"}
        else:
            specs = {"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none", site: spec}
        return cls(spec, specs)

    @property
    def tied(self) -> bool:
        return self.specs is not None and registry.card(registry.parse(self.specs["encoder"]).parts[0].name).tied_layers


def dictionary() -> Dictionary:
    words = Dictionary()
    for number in range(WORDS):
        words.add_symbol(f"w{number}")
    return words


def build(variant: Variant, size: str, positions: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A new model in training mode."""
    layers, width, heads, inner, _ = SIZES[size]
    arch = "transformer" if variant.specs is None else "posenc_transformer"
    args = Namespace(dropout=0.1, share_all_embeddings=True, max_source_positions=positions, max_target_positions=positions)
    sizes = {"layers": layers, "embed_dim": width, "attention_heads": heads, "ffn_embed_dim": inner}
    vars(args).update({f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()})
    for site, spec in (variant.specs or {}).items():
        setattr(args, f"{site}_position", spec)
    args.tie_encoder_layers = args.tie_decoder_layers = variant.tied
    ARCH_CONFIG_REGISTRY[arch](args)
    words = dictionary()
    task: Any = SimpleNamespace(source_dictionary=words, target_dictionary=words, cfg=Namespace(left_pad_target=False))
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device, dtype)

"""Models of a benchmark: stock fairseq's Transformer, and this project's Transformer with one method, with equal sizes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import nn

from .. import registry
from ..core import Dims, PositionError
from ..core.hooks import OUTSIDE_ATTENTION
from ..data.side.examples import RELATIONS
from ..registry.architectures import MODEL, PREFIX, SIZES, Size, architecture
from ..registry.spec import build as build_methods
from ..registry.spec import parse

STOCK = "stock"
WORDS = 1000


@dataclass(frozen=True)
class Variant:
    """The model of one row of the benchmark.

    `name` is a spec, an architecture, or `STOCK`. `specs` are the specs of the three sites, or None for stock fairseq.
    """

    name: str
    specs: Mapping[str, str] | None

    @classmethod
    def of(cls, spec: str, site: str) -> Variant:
        """Return the model of one benchmark row (`Variant`) for an architecture or a spec.

        With `site` "model", the result depends on the spec. For one method without options, the model has the specs of the
        architecture of this method. For other specs, encoder and decoder use the spec, and the cross-attention uses `none`.
        If `site` is encoder, decoder or cross, only this site uses the spec. The other sites have `sinusoidal` (encoder,
        decoder) or `none` (cross).
        """
        if spec.startswith(PREFIX):
            return cls(spec, architecture(spec).specs)
        name = parse(spec).methods[0].name
        if site == "model":
            specs = registry.card(name).specs if spec == name else {"encoder": spec, "decoder": spec, "cross": "none"}
        else:
            specs = {"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none", site: spec}
        return cls(spec, specs)

    @property
    def tied(self) -> bool:
        return self.specs is not None and registry.card(parse(self.specs["encoder"]).methods[0].name).tied_layers

    def stands_alone(self, width: int, heads: int) -> bool:
        """Return whether one attention module includes all costs of the encoder methods.

        The result is False if the methods have no hooks, or if a hook acts outside of attention.
        """
        if self.specs is None:
            return True
        methods = build_methods(self.specs["encoder"], Dims(width, heads, relations=RELATIONS), "encoder")
        return any(method.hooks for method in methods) and not any(method.hooks & OUTSIDE_ATTENTION for method in methods)


def variants(specs: list[str], site: str) -> list[Variant]:
    """Return the variants that are defined at the site. Raise PositionError for wrong specs before the measurement."""
    found, problems = [], []
    for spec in specs:
        try:
            variant = Variant.of(spec, site)
            if site == "model":
                found.append(variant)
            elif not spec.startswith(PREFIX) and site in registry.card(parse(spec).methods[0].name).all_sites:
                parse(spec, site)  # raises an error for options that are not allowed at this site
                found.append(variant)
        except PositionError as error:
            problems.append(str(error))
    if problems:
        raise PositionError(" ".join(problems))
    if not found:
        raise PositionError(f"--sites {site}: none of {', '.join(specs)} is defined at this site. Use other methods or sites.")
    return found


def dictionary() -> Dictionary:
    words = Dictionary()
    for number in range(WORDS - 1):
        words.add_symbol(f"w{number}")
    words.add_symbol("<sep>")
    return words


def build(variant: Variant, size: str, positions: int, device: torch.device | None, dtype: torch.dtype) -> nn.Module:
    """Return a new model in training mode. Without a device, tensors stay on the device on which they were created."""
    arch = "transformer" if variant.specs is None else MODEL
    args = Namespace(dropout=0.1, share_all_embeddings=True, max_source_positions=positions, max_target_positions=positions)
    if variant.name.startswith(PREFIX):
        arch = variant.name + size
    else:
        _set_sizes(args, variant, SIZES[size])
    ARCH_CONFIG_REGISTRY[arch](args)
    args.relations = RELATIONS
    words = dictionary()
    task: Any = SimpleNamespace(
        source_dictionary=words, target_dictionary=words, cfg=Namespace(left_pad_target=False), side_inputs={}
    )
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device=device, dtype=dtype)


def _set_sizes(args: Namespace, variant: Variant, chosen: Size) -> None:
    """Set sizes and specs of a model whose architecture does not set them."""
    sizes = {
        "layers": chosen.layers, "embed_dim": chosen.embed_dim,
        "attention_heads": chosen.heads, "ffn_embed_dim": chosen.ffn_embed_dim,
    }  # fmt: skip
    vars(args).update({f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()})
    for site, spec in (variant.specs or {}).items():
        setattr(args, f"{site}_position", spec)
    args.tie_encoder_layers = args.tie_decoder_layers = variant.tied

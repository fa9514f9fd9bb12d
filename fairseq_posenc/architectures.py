"""The architectures: posenc_<method> in four sizes, and posenc_transformer, whose specs are options (no torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import registry

#: the name of the fairseq model, and of the architecture whose specs are options
MODEL = "posenc_transformer"
#: the same of the Transformer whose hidden states are complex
COMPLEX_MODEL = "posenc_complex_transformer"


@dataclass(frozen=True)
class Size:
    """The sizes of encoder and decoder, which are the same."""

    layers: int
    embed_dim: int
    heads: int
    ffn_embed_dim: int
    dropout: float


#: suffix of the architecture's name -> its size
SIZES = {
    "": Size(6, 512, 8, 2048, 0.1),
    "_tiny": Size(2, 128, 4, 512, 0.1),
    "_small": Size(3, 256, 4, 1024, 0.1),
    "_big": Size(6, 1024, 16, 4096, 0.3),
}


@dataclass(frozen=True)
class Architecture:
    """The spec of every site, a size, whether all layers of a stack are one, and the fairseq model."""

    specs: Mapping[str, str]
    size: Size
    tied_layers: bool = False
    model: str = MODEL


#: architectures that are more than a method, by name
_BESIDE_METHODS: dict[str, dict[str, Any]] = {
    COMPLEX_MODEL: {
        "specs": {site: "complex:frequencies=dimension,learned=false" for site in ("encoder", "decoder")} | {"cross": "none"},
        "model": COMPLEX_MODEL,
    },
}


def architectures() -> Iterator[tuple[str, Architecture]]:
    """Every architecture with its name."""
    for suffix, size in SIZES.items():
        yield MODEL + suffix, Architecture({"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none"}, size)
        for card in map(registry.card, registry.names()):
            yield f"posenc_{card.name}{suffix}", Architecture(card.specs, size, card.tied_layers)
        for name, changes in _BESIDE_METHODS.items():
            yield name + suffix, Architecture(size=size, **changes)

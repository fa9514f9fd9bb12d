"""Define the architectures: posenc_transformer, posenc_<method>, and combinations such as posenc_pnat.

Each architecture has four sizes. This module does not import torch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core import PositionError
from . import lookup

#: prefix of the names of all models and architectures
PREFIX = "posenc_"
#: name of the fairseq model, and of one architecture. Users set the specs of this architecture with options
MODEL = "posenc_transformer"
#: name of the fairseq model with complex hidden states
COMPLEX_MODEL = "posenc_complex_transformer"
#: name of the non-autoregressive fairseq model that predicts positions
PNAT = "posenc_pnat"
#: name of the fairseq task whose batches contain side inputs
TASK = "posenc_translation"
#: name of the fairseq task for non-autoregressive models
NAT_TASK = "posenc_nat_translation"


@dataclass(frozen=True)
class Size:
    """Sizes of encoder and decoder."""

    layers: int
    embed_dim: int
    heads: int
    ffn_embed_dim: int
    dropout: float


#: suffix of an architecture's name -> size
SIZES = {
    "": Size(6, 512, 8, 2048, 0.1),
    "_tiny": Size(2, 128, 4, 512, 0.1),
    "_small": Size(3, 256, 4, 1024, 0.1),
    "_big": Size(6, 1024, 16, 4096, 0.3),
}


@dataclass(frozen=True)
class Architecture:
    """The settings of one architecture.

    specs: site -> spec. tied_layers: whether the layers of a stack share parameters. model: name of the fairseq model. options:
    name -> value of other options of the model.
    """

    specs: Mapping[str, str]
    size: Size
    tied_layers: bool = False
    model: str = MODEL
    options: Mapping[str, Any] = field(default_factory=dict)


def _beside_methods(size: Size) -> Iterator[tuple[str, Architecture]]:
    """Yield the architectures that are not named after a method. They combine methods, or set other options of the model."""
    sites = {site: "complex:frequencies=dimension,learned=false" for site in ("encoder", "decoder")}
    yield COMPLEX_MODEL, Architecture({**sites, "cross": "none"}, size, model=COMPLEX_MODEL)
    # in tensor2tensor, the maximum number of steps is twice the number of layers
    steps = {f"{side}_layers": 2 * size.layers for side in ("encoder", "decoder")}
    halting = {f"{side}_halting": "continue" for side in ("encoder", "decoder")}
    universal = lookup.card("universal")
    yield "posenc_universal_halting", Architecture(universal.specs, size, universal.tied_layers, options={**steps, **halting})
    # in the authors' model, the last 2 of 6 layers are global
    group, last = lookup.card("group"), max(1, size.layers // 3)
    yield (
        "posenc_g_transformer",
        Architecture(group.specs, size, options={f"{site}_global_layers": last for site in group.all_sites}),
    )
    sites = dict.fromkeys(("encoder", "decoder"), "sinusoidal+shortformer+xl")
    yield "posenc_p_transformer", Architecture({**sites, "cross": "shortformer"}, size)
    # every fourth layer has full attention without positions. With fewer than four layers, only the last layer has full attention
    whole = min(4, size.layers)
    layers = "/".join(str(layer) for layer in range(size.layers) if layer % 4 != whole - 1)
    spec = f"rope:layout=interleaved,base=50000,layers={layers}+window:width=64,layers={layers}"
    yield "posenc_rope_window", Architecture({"encoder": spec, "decoder": spec, "cross": "none"}, size)
    # the authors use shaw with this distance in the decoder
    pnat = {"encoder": "sinusoidal", "decoder": "shaw:max_distance=4", "cross": "none"}
    yield PNAT, Architecture(pnat, size, model=PNAT, options={"length_loss_weight": 0.1})


def beside_methods() -> list[str]:
    """Return the names of the architectures that are not named after a method. The names do not contain a size."""
    return [name for name, _ in _beside_methods(SIZES[""])]


def architectures() -> Iterator[tuple[str, Architecture]]:
    """Yield (name, architecture) of all architectures."""
    for suffix, size in SIZES.items():
        yield MODEL + suffix, Architecture({"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none"}, size)
        for card in map(lookup.card, lookup.names()):
            yield f"posenc_{card.name}{suffix}", Architecture(card.specs, size, card.tied_layers)
        for name, architecture in _beside_methods(size):
            yield name + suffix, architecture


@functools.cache
def _architectures_of(methods: tuple[str, ...]) -> dict[str, Architecture]:
    """Return all architectures by name. `methods` contains the names of all methods, because a user can add methods."""
    return dict(architectures())


def architecture(name: str, size: str = "") -> Architecture:
    """Return the architecture with this name. `size` is a key of `SIZES`.

    Raise PositionError for an unknown name, and for a name that ends with a model size, such as posenc_t5_small. Also raise
    PositionError for posenc_transformer, because users set the specs of posenc_transformer with options.
    """
    known = _architectures_of(tuple(lookup.names()))
    found = known.get(name)
    ending = next((suffix for suffix in SIZES if suffix and name.endswith(suffix)), "")
    if found is None or name == MODEL or ending:
        try:
            lookup.card(name.removeprefix(PREFIX))
        except PositionError as error:
            plain = name.removesuffix(ending)
            if ending and found is not None and plain != MODEL:
                raise PositionError(f"architecture {name!r}: the name contains a size. Expected {plain}.") from None
            raise PositionError(f"architecture {name!r}: {error} Expected {PREFIX}NAME, without a size.") from None
    if found is None:
        raise PositionError(f"architecture {name!r}: no architecture has this name. Expected {PREFIX}NAME, without a size.")
    return known[name + size]

"""Architectures: posenc_<method> in four sizes for every method, and posenc_transformer, whose specs are options."""

from __future__ import annotations

from typing import Any, Callable

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture

from .. import registry
from ..contract import MethodCard
from . import model

#: layers, width, heads, width of the feed-forward network, dropout
SIZES = {
    "": (6, 512, 8, 2048, 0.1),
    "_tiny": (2, 128, 4, 512, 0.1),
    "_small": (3, 256, 4, 1024, 0.1),
    "_big": (6, 1024, 16, 4096, 0.3),
}


def stacks(card: MethodCard) -> dict[str, str]:
    """The spec of every site in posenc_<method>: the method at both self-attentions where it can serve, cross-attention plain."""
    chosen = {site: card.name if site in card.all_sites else "none" for site in ("encoder", "decoder")}
    return {**chosen, "cross": "none", **card.stacks}


def _architecture(size: str, specs: dict[str, str], tied: bool) -> Callable[[Any], None]:
    layers, width, heads, inner, dropout = SIZES[size]
    defaults = {"dropout": dropout}
    for side in ("encoder", "decoder"):
        defaults.update(
            {
                f"{side}_layers": layers,
                f"{side}_embed_dim": width,
                f"{side}_attention_heads": heads,
                f"{side}_ffn_embed_dim": inner,
                f"tie_{side}_layers": tied,
            }
        )
    defaults.update({f"{site}_position": spec for site, spec in specs.items()})

    def architecture(args: Any) -> None:
        for name, value in defaults.items():
            given = getattr(args, name, None)
            if given is None or given is False:  # and not 0, as in --dropout 0
                setattr(args, name, value)
        base_architecture(args)

    return architecture


def register() -> None:
    """Registers every architecture with fairseq, once."""
    named = {f"posenc_{card.name}": (stacks(card), card.tied_layers) for card in map(registry.card, registry.names())}
    named[model.NAME] = ({"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none"}, False)
    for name, (specs, tied) in named.items():
        for size in SIZES:
            register_model_architecture(model.NAME, name + size)(_architecture(size, specs, tied))


register()

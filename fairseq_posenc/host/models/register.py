"""Register all models and architectures with fairseq at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture

from ...registry.architectures import Architecture, architectures
from .complex import model as _complex  # noqa: F401  (registers the model)
from .pnat import model as _pnat  # noqa: F401  (registers the model)
from .transformer import model  # noqa: F401  (registers the model)

#: sizes of the decoder -> sizes of the encoder that are their default values, as in stock fairseq
_FOLLOWING = {f"decoder_{size}": f"encoder_{size}" for size in ("embed_dim", "ffn_embed_dim")}


def _defaults(architecture: Architecture) -> dict[str, Any]:
    """Return the default values of model options that this architecture sets."""
    size = architecture.size
    defaults: dict[str, Any] = {"dropout": size.dropout}
    for side in ("encoder", "decoder"):
        defaults |= {
            f"{side}_layers": size.layers,
            f"{side}_embed_dim": size.embed_dim,
            f"{side}_attention_heads": size.heads,
            f"{side}_ffn_embed_dim": size.ffn_embed_dim,
            f"tie_{side}_layers": architecture.tied_layers,
        }
    return defaults | {f"{site}_position": spec for site, spec in architecture.specs.items()} | dict(architecture.options)


def _setter(defaults: dict[str, Any]) -> Callable[[Any], None]:
    """Return the function that fairseq calls to set the options that the user has not given.

    Without options for the widths of the decoder, the decoder has the widths of the encoder.
    """

    def complete(args: Any) -> None:
        for name, value in defaults.items():
            given = getattr(args, name, None)
            if given is None or given is False:  # `if not given` would also replace a valid 0, for example in --dropout 0
                setattr(args, name, getattr(args, _FOLLOWING[name]) if name in _FOLLOWING else value)
        base_architecture(args)

    return complete


for _name, _architecture in architectures():
    register_model_architecture(_architecture.model, _name)(_setter(_defaults(_architecture)))

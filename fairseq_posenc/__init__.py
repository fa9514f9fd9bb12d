"""Position encodings for machine translation with fairseq."""

import importlib
import sys

from .version import __version__

#: name -> the module that contains it. The module is imported when the name is first used.
_PUBLIC = {
    "Dims": "core",
    "MethodCard": "core",
    "PositionError": "core",
    "PositionMethod": "core",
    "PositionTransformer": "host.plugin",
    "build_attention": "attention",
    "card": "registry",
    "names": "registry",
}
__all__ = [
    "Dims",
    "MethodCard",
    "PositionError",
    "PositionMethod",
    "PositionTransformer",
    "__version__",
    "build_attention",
    "card",
    "names",
]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)


if "fairseq" in sys.modules:  # for example, if fairseq imports this package as its --user-dir
    from .host import plugin  # noqa: F401

"""Complete method names and specs of posenc commands in a shell.

argcomplete calls the functions of this module. This module does not import torch.
"""

from __future__ import annotations

from typing import Any

from . import lookup, spec
from .architectures import PREFIX


def methods(prefix: str, **_: Any) -> list[str]:
    """Return the names of methods that begin with the prefix."""
    return [name for name in lookup.names() if name.startswith(prefix)]


def specs(prefix: str, **_: Any) -> list[str]:
    """Return the completions of an incomplete spec."""
    return spec.complete(prefix)


def specs_and_architectures(prefix: str, **_: Any) -> list[str]:
    """Return the completions of an incomplete spec, or of an incomplete architecture name `posenc_<method>`."""
    return [*specs(prefix), *(name for name in map(PREFIX.__add__, lookup.names()) if name.startswith(prefix))]

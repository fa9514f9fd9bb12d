"""Shell completion of arguments of the posenc command, called by argcomplete (no torch)."""

from __future__ import annotations

from typing import Any

from . import lookup, spec
from .architectures import PREFIX


def methods(prefix: str, **_: Any) -> list[str]:
    """Return the names of methods."""
    return [name for name in lookup.names() if name.startswith(prefix)]


def specs(prefix: str, **_: Any) -> list[str]:
    """Return completions of a spec."""
    return spec.complete(prefix)


def specs_and_architectures(prefix: str, **_: Any) -> list[str]:
    """Return completions of a spec, and the architectures of methods."""
    return [*specs(prefix), *(name for name in map(PREFIX.__add__, lookup.names()) if name.startswith(prefix))]

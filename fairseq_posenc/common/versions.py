"""The versions of everything that makes the numbers."""

from __future__ import annotations

from ..version import __version__


def versions() -> dict[str, str]:
    """Versions of posenc, fairseq, torch and sacreBLEU."""
    import fairseq
    import sacrebleu
    import torch

    return {"posenc": __version__, **{module.__name__: str(module.__version__) for module in (fairseq, torch, sacrebleu)}}

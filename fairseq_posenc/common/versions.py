"""Versions of the software that computes the results."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..version import __version__


def versions() -> dict[str, str]:
    """Return the versions of posenc, fairseq, torch and sacreBLEU."""
    import fairseq
    import sacrebleu
    import torch

    return {"posenc": __version__, **{module.__name__: str(module.__version__) for module in (fairseq, torch, sacrebleu)}}


def commit(checkout: Path = Path(__file__).parents[2]) -> str | None:
    """Return the git commit of a checkout, with "-dirty" if tracked files are changed.

    Return None for an installation without a checkout, or if git fails.
    """
    if not (checkout / ".git").exists():
        return None
    describe = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, no commit yet, or a checkout of another user
        return None

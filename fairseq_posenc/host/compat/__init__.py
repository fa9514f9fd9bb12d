"""Patches of fairseq 0.12 for training, resuming and decoding with current Python, torch and numpy. Each module has one subject.

This package is imported before the other modules of the plugin. The patches change fairseq in memory, not the installed files.
"""

import functools
import importlib

#: modules in the order of their imports. `environment` exits with a one-line message if fairseq cannot be used
_SUBJECTS = (
    "environment", "checkpoints", "archives", "evaluation", "execution", "loading", "saving", "patience", "batches",
    "generation", "distributed", "machines", "memory", "precision", "warnings",
)  # fmt: skip


@functools.cache
def apply() -> None:
    """Apply all patches once."""
    for module in [importlib.import_module(f".{name}", __name__) for name in _SUBJECTS]:
        module.apply()


apply()

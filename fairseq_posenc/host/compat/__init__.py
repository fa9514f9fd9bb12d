"""Patches of fairseq 0.12 for training, resuming and decoding with current Python, torch and numpy. Each module has one subject.

This package is imported before the other modules of the plugin. The patches change fairseq in memory, not the installed files.
"""

import functools

from . import environment  # must be first: environment exits with a one-line message if fairseq cannot be used

# isort: split
from . import (
    archives,
    batches,
    checkpoints,
    distributed,
    evaluation,
    execution,
    generation,
    machines,
    memory,
    optimizer_state,
    patience,
    precision,
    saving,
    structure,
    warnings,
)

_CONCERNS = (
    environment,
    checkpoints,
    archives,
    evaluation,
    execution,
    optimizer_state,
    saving,
    patience,
    batches,
    generation,
    distributed,
    machines,
    memory,
    precision,
    structure,
    warnings,
)


@functools.cache
def apply() -> None:
    """Apply all patches once."""
    for concern in _CONCERNS:
        concern.apply()


apply()

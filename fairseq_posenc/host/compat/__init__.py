"""Patches of fairseq 0.12 for loading, resuming and decoding with current Python, torch and numpy. Each module has one subject.

This package is imported before the other modules of the plugin. The patches apply in memory. They do not modify installed files.
"""

import functools

from . import environment  # must be first, because it exits with one line if fairseq cannot be used

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
    optimizer_state,
    patience,
    precision,
    saving,
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
    precision,
    warnings,
)


@functools.cache
def apply() -> None:
    """Apply all patches once."""
    for concern in _CONCERNS:
        concern.apply()


apply()

"""All that fairseq 0.12 needs to load, resume and decode on today's Python, torch and numpy: one module a concern.

Imported before everything else of the plugin. It acts in memory, on the fairseq that is installed; no file changes.
"""

import functools

from . import environment  # must be first: it prints one line if fairseq cannot be used

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
    """Do all of it, once."""
    for concern in _CONCERNS:
        concern.apply()


apply()

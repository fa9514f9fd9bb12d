"""The module that fairseq imports for --user-dir.

It imports `compat` first, then registers models, criterions, optimizers and tasks.
"""

import sys

from ..core import PositionError
from . import compat  # noqa: F401  (must be first: it patches fairseq for current Python and torch)

try:
    from .criterions import cross_entropy, nat  # noqa: F401  (registers the criterions)
    from .models import register  # noqa: F401  (registers models and architectures with fairseq)
    from .models.transformer.model import PositionTransformer  # noqa: F401  (users call its from_pretrained)
    from .optimizers import adam  # noqa: F401  (registers the optimizer)
    from .tasks import nat as _nat  # noqa: F401  (registers the task)
    from .tasks import translation  # noqa: F401  (registers the task)
except PositionError as error:  # a file in POSENC_METHODS has an error
    sys.exit(f"fairseq_posenc: {error}")

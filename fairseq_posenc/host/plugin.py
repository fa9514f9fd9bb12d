"""The module that fairseq loads with --user-dir. It imports compat first, then registers models, criterions and tasks."""

import sys

from ..core import PositionError
from . import compat  # noqa: F401  (first: it readies fairseq for today's Python and torch)

try:
    from .criterions import cross_entropy, nat  # noqa: F401  (registers the criterions)
    from .models import register  # noqa: F401  (registers models and architectures with fairseq)
    from .models.transformer.model import PositionTransformer  # noqa: F401  (whose from_pretrained loads a checkpoint)
    from .tasks import nat as _nat  # noqa: F401  (registers the task)
    from .tasks import translation  # noqa: F401  (registers the task)
except PositionError as error:  # a file of POSENC_METHODS is wrong
    sys.exit(f"fairseq_posenc: {error}")

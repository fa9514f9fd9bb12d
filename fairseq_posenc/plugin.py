"""What fairseq loads with --user-dir: first compat, then what it registers."""

import sys

from . import compat  # noqa: F401  (first: it readies fairseq for today's Python and torch)
from .core import PositionError
from .criterions import cross_entropy  # noqa: F401  (registers the criterion)
from .tasks import translation  # noqa: F401  (registers the task)

try:
    from .models.transformer import register  # noqa: F401  (registers model and architectures with fairseq)
except PositionError as error:  # a file of POSENC_METHODS is wrong
    sys.exit(f"fairseq_posenc: {error}")

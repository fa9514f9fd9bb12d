"""What fairseq loads with --user-dir: first compat, then what it registers."""

from . import compat  # noqa: F401  (first: it readies fairseq for today's Python and torch)
from .criterions import cross_entropy  # noqa: F401  (registers the criterion)
from .models import register  # noqa: F401  (registers model and architectures with fairseq)
from .tasks import translation  # noqa: F401  (registers the task)

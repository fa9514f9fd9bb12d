"""Position encodings for machine translation with fairseq; `--user-dir` imports this."""

from . import compat  # noqa: F401  (first: it readies fairseq for today's Python and torch)
from .api import build_attention, card, names
from .contract import Dims, MethodCard, PositionError, PositionMethod
from .transformer import architectures  # noqa: F401  (registers model and architectures with fairseq)
from .version import __version__

__all__ = ["Dims", "MethodCard", "PositionError", "PositionMethod", "__version__", "build_attention", "card", "names"]

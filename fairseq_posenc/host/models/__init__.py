"""fairseq models with position methods."""

from .. import compat  # noqa: F401  (must be first: it patches fairseq for current Python and torch)

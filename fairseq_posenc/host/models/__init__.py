"""fairseq models with position methods."""

from .. import compat  # noqa: F401  (first: it readies fairseq for today's Python and torch)

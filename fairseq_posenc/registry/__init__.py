"""Look up methods, their cards and citations. Parse specs, define architectures, and complete arguments in the shell."""

from .lookup import card, declaration, method_class, names, nearest

__all__ = ["card", "declaration", "method_class", "names", "nearest"]

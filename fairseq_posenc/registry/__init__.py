"""Finding methods: their names and cards, the spec grammar, architecture names, citations and completion candidates."""

from .lookup import card, declaration, method_class, names, nearest

__all__ = ["card", "declaration", "method_class", "names", "nearest"]

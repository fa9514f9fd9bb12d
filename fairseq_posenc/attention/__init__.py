"""Multi-head attention with positions (torch only)."""

from .positional import PositionalAttention, build_attention

__all__ = ["PositionalAttention", "build_attention"]

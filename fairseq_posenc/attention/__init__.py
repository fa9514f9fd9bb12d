"""Multi-head attention with positions. This package does not import fairseq."""

from .positional import PositionalAttention, build_attention

__all__ = ["PositionalAttention", "build_attention"]

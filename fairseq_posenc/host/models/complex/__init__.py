"""The Transformer with complex hidden states."""

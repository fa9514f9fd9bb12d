"""The Transformer with position methods."""

"""The Transformer that hosts position methods."""

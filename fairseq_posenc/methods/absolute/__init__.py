"""Absolute positions that enter with the embeddings or with the inputs of attention."""

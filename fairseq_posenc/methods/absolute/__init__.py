"""Absolute positions, added to the embeddings or to the inputs of attention."""

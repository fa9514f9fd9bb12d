"""Absolute positions. Most methods add them to the embeddings, to the inputs of layers or to the inputs of attention."""

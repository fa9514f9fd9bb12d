"""Methods that enter with the embeddings or before the layers."""

"""Tasks whose batches contain the side inputs of methods."""

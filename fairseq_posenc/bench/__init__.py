"""posenc bench: the cost of every method beside stock fairseq's Transformer or beside its public peer."""

"""posenc bench: what every method costs beside stock fairseq's Transformer, measured in one process and in turns."""

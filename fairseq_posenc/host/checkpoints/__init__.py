"""Checkpoints of fairseq: read, check, average, convert, and repair them."""

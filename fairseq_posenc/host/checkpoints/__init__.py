"""Checkpoints of fairseq: what they say of their training, their repair after an interruption, their average."""

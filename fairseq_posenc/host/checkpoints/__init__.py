"""Checkpoints of fairseq: description of the training run, repair after an interruption, and averages."""

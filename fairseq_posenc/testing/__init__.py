"""Checks that every method must pass, also methods outside this package. The checks require PyTorch and fairseq."""

"""Check methods of this package and methods outside this package. Every method must pass these checks.

The checks require PyTorch and fairseq.
"""

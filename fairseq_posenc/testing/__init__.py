"""Checks that every method must pass, for methods of this package and of users. They require PyTorch and fairseq."""

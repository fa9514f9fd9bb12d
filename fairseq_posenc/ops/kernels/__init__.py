"""Kernels with backward passes of their own."""

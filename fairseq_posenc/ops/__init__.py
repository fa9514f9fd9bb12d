"""Tensor computations that several methods share."""

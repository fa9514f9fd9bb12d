"""Attention that replaces the scaled product of queries and keys, or the softmax."""

"""Scores or values that combine positions with queries, keys or values."""

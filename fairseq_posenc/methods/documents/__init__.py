"""Positions in documents: sentences are told apart by a separator token."""

"""Queries and keys rotated by their position."""

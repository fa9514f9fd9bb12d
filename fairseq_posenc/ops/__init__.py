"""Stateless tensor helpers that several methods share."""

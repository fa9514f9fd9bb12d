"""Recurrent networks instead of position encodings."""

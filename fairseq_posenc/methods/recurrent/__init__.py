"""Recurrent networks in place of positions."""

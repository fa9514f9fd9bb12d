"""Positions that give the decoder the requested output length."""

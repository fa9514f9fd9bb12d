"""Positions that tell the decoder how long its output is to be."""

"""Decoding with requested output lengths, with forced separators, or with a non-autoregressive model."""

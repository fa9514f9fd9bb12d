"""Output lengths in decoding, forced separators, and a generator for non-autoregressive models."""

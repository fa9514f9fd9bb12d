"""Output lengths in decoding, and a generator for non-autoregressive models."""

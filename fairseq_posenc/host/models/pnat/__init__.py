"""PNAT: a non-autoregressive Transformer that learns the target position of each decoder input."""

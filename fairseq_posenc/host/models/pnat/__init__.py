"""PNAT: a non-autoregressive Transformer that predicts the target position of each decoder input."""

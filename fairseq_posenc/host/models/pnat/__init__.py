"""PNAT: a non-autoregressive Transformer that learns at which target position each of its inputs stands."""

"""The Transformer whose hidden states are complex."""

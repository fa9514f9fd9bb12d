"""Published analyses of the positions of trained models."""

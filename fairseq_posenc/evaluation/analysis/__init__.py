"""The analyses of the literature: what the positions of trained models have learned, and what they are good for."""

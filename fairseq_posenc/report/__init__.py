"""Scores of trained models: one score.json a run, and tables made from these files alone."""

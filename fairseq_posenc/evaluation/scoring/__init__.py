"""Measure a trained model: scores of its translations, its training log, its peak memory, in one score.json a run."""

"""Scores of training runs, reports that compare runs, and analyses of trained models."""

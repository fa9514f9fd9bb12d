"""Measure trained models.

One score.json per run contains the scores of its translations, its training log and its peak memory.
"""

"""Corpora: the artificial language of the quickstart, and Multi30K."""

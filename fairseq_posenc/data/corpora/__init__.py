"""Corpora: the artificial language of the quickstart, Multi30K, WMT18, and users' own parallel text."""

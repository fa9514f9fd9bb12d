"""Generators: how hypotheses are made where fairseq's own generator does not do."""

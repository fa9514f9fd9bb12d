"""The documentation as a site that needs no other host: pages made from cards, docstrings, results and docs/."""

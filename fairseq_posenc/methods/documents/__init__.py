"""Positions in documents. A separator token divides a document into sentences."""

"""Download, generate and check training and test data."""

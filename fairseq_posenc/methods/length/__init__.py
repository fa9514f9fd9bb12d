"""Position encodings that depend on the requested output length, and scores that depend on the number of keys."""

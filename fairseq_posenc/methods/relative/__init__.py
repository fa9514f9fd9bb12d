"""Methods that combine positions with queries, keys or values."""

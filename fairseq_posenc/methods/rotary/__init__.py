"""Methods that rotate queries and keys by their position."""

"""Text files with trees, graphs and orders for the side inputs of methods, and their checks."""

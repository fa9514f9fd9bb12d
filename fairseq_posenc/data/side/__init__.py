"""Create and check side files: text files with trees, graphs and reorderings, from which side inputs are computed."""

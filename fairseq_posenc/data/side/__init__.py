"""Side inputs of methods: text files with trees, graphs and orders, and their checks."""

"""Build the documentation as a web site without requests to other hosts."""

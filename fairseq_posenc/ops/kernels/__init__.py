"""Autograd functions with their own backward passes."""

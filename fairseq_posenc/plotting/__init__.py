"""Plots of the effect of position methods on attention. Every position has the same content."""

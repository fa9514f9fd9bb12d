"""Terms that depend on positions and are added to the scores, and masks that depend on positions."""

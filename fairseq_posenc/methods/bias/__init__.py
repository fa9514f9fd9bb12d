"""Terms of positions that are added to the scores, and masks."""

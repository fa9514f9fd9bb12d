"""Terms of positions added to the scores, and masks."""

"""Methods that enter in the scores, the masks or the values of attention."""

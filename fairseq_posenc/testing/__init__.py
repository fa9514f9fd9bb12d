"""The checks that every method must pass, of this package or of your own, and what they need (torch and fairseq)."""

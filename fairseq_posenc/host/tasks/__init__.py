"""fairseq tasks: translation with side inputs and output lengths, and non-autoregressive translation."""

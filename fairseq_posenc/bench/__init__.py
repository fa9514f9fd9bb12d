"""posenc bench: measure the cost of methods, compared with stock fairseq or with a public implementation (peer)."""

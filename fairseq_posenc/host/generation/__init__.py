"""What decoding asks of a model beside words, and generators where fairseq's own does not do."""

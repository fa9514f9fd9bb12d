"""What decoding asks of a model beside words."""

"""What a model is trained on: the artificial language of the quickstart."""

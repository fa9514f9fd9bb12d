"""What a model is trained on."""

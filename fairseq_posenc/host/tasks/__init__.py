"""Tasks whose batches carry what methods read beside the words."""

"""Side inputs in fairseq: binary side files, their checksums, and the dataset that adds them to batches."""

"""Side inputs in fairseq: binary side files, their checksums, and the dataset that adds side inputs to batches."""

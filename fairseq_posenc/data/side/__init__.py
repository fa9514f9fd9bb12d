"""What methods read beside the words of a sentence: files, and the dataset that brings them into batches."""

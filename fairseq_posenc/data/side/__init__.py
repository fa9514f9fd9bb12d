"""Side inputs of methods: side files, and the data set that adds them to batches."""

"""Methods that replace the scaled product of queries and keys, or the softmax."""

"""Tasks whose batches carry what methods read beside the words."""

#: the name under which fairseq knows the task
TASK = "posenc_translation"

"""Tasks whose batches carry what methods read beside the words."""

#: the name under which fairseq knows the task
TASK = "posenc_translation"
#: the same of the one for models that write all words at once
NAT_TASK = "posenc_nat_translation"

"""Criterions that also read what methods add to the loss."""

#: the name under which fairseq knows the criterion
CRITERION = "posenc_label_smoothed_cross_entropy"

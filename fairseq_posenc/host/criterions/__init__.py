"""Criterions that also read what methods add to the loss."""

#: the name under which fairseq knows the criterion
CRITERION = "posenc_label_smoothed_cross_entropy"
#: the same of the one for models that write all words at once
NAT_CRITERION = "posenc_nat_loss"

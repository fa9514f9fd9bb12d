"""Criterions that add the loss terms of methods."""

#: name of the criterion in fairseq
CRITERION = "posenc_label_smoothed_cross_entropy"
#: the same of the one for models that write all words at once
NAT_CRITERION = "posenc_nat_loss"

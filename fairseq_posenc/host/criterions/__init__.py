"""Criterions that add the loss terms of methods."""

#: name of the criterion in fairseq
CRITERION = "posenc_label_smoothed_cross_entropy"
#: name of the criterion for non-autoregressive models
NAT_CRITERION = "posenc_nat_loss"

"""fairseq criterions for models with position methods, and for non-autoregressive models."""

#: fairseq's name for the criterion that adds the loss terms of methods
CRITERION = "posenc_label_smoothed_cross_entropy"
#: fairseq's name for the criterion for non-autoregressive models
NAT_CRITERION = "posenc_nat_loss"

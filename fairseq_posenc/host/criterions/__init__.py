"""fairseq criterions for models with position methods, and for non-autoregressive models."""

#: value of --criterion for the criterion that adds the loss terms of methods
CRITERION = "posenc_label_smoothed_cross_entropy"
#: value of --criterion for the criterion of non-autoregressive models
NAT_CRITERION = "posenc_nat_loss"

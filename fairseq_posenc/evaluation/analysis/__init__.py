"""`posenc analyse`: published analyses of how trained models use positions."""

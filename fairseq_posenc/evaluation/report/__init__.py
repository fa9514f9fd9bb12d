"""`posenc report`: tables and plots that compare runs. They are computed only from score.json files."""

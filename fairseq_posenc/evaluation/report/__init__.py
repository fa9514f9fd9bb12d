"""Tables and plots of many runs, made from their score.json alone."""

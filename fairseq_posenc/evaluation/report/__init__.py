"""Tables and plots of many runs, computed only from their score.json."""

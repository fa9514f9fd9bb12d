"""Score training runs, compare runs in reports, and analyse trained models."""

"""Position encodings, with one file per paper. The registry finds every subclass of PositionMethod that has a card."""

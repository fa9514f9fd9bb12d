"""One file per paper; the registry finds every subclass of PositionMethod that carries a card."""

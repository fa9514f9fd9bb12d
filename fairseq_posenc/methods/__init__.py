"""One file per method; the registry finds every subclass of PositionMethod that carries a card."""

"""The error of everything that a user can get wrong."""


class PositionError(ValueError):
    """A wrong spec, option, site or length: the message says what was given, what is allowed and what to do next."""

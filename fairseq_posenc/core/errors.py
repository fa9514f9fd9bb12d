"""The errors of everything that a user can get wrong."""


class PositionError(ValueError):
    """A wrong spec, option, site or length: the message says what was given, what is allowed and what to do next."""


class Refusal(SystemExit):
    """One clear line on standard error and a non-zero exit, also where fairseq or torch would wrap or swallow an exception."""

    def __init__(self, message: object):
        super().__init__(f"fairseq_posenc: {message}")

"""Errors caused by user input."""


class PositionError(ValueError):
    """Error in a spec, option, site, length or file. The message names the subject, the problem, what is expected and a fix."""


class Refusal(SystemExit):
    """Exit with one line on standard error and a non-zero status.

    Exception handlers of fairseq and torch do not catch this error.
    """

    def __init__(self, message: object):
        super().__init__(f"fairseq_posenc: {message}")

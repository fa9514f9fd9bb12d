"""Errors caused by user input."""


class PositionError(ValueError):
    """Error in a spec, option, site, length or file. The message names the subject, the problem, what is expected and a fix."""


class Refusal(SystemExit):
    """Exit with one line on standard error and a non-zero status.

    Exception handlers of fairseq and torch do not catch this error.
    """

    def __init__(self, message: object):
        super().__init__(f"fairseq_posenc: {message}")


def require_option(allowed: bool, option: str, value: object, expected: str) -> None:
    """Raise Refusal for the value of an option of fairseq-train unless the value is allowed.

    `option` is the name of the option, or of the variable that contains its value. `expected` describes all allowed values.
    """
    if not allowed:
        raise Refusal(f"--{option.replace('_', '-')} {value}: not allowed. Expected {expected}.")

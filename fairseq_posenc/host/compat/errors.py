"""Shorten error messages of other libraries to one line."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error message. torch's long advice about weights_only is skipped."""
    message = str(error).split("WeightsUnpickler error:")[-1].strip()
    return message.splitlines()[0] if message else type(error).__name__

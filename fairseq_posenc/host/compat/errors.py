"""One-line messages about errors of other libraries."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, without torch's long advice."""
    message = str(error).split("WeightsUnpickler error:")[-1].strip()
    return message.splitlines()[0] if message else type(error).__name__

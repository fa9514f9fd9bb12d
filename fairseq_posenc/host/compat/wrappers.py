"""Write the wrapper of a function of fairseq or torch as one function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrapper(call: Callable) -> Callable[[Callable], Callable]:
    """Turn `call(original, *args, **kwargs)` into a function that returns a wrapper of `original`.

    The wrapper has the name and the docstring of `original`.
    """

    @functools.wraps(call)
    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return call(original, *args, **kwargs)

        return wrapped

    return wrap

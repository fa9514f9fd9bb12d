"""Print the progress of a long computation on standard error."""

from __future__ import annotations

import sys
import time

#: seconds between two lines if standard error is not a terminal
_PAUSE = 20.0


class Progress:
    """Print progress. A terminal shows only the latest line. Other outputs get at most one line per 20 seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = -_PAUSE

    def show(self, text: str) -> None:
        """Show a text with the elapsed time."""
        seconds = time.monotonic() - self._start
        stamped = f"[{int(seconds // 60):2d}:{int(seconds % 60):02d}] {text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{stamped}", end="", file=sys.stderr, flush=True)
        elif seconds - self._last >= _PAUSE:
            self._last = seconds
            print(stamped, file=sys.stderr, flush=True)

    def end(self) -> None:
        """On a terminal, remove the line."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)

"""Text files read and files written with errors of one line, and no partial file left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from ..core import PositionError


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of a UTF-8 file, without a byte order mark; raises PositionError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except OSError as error:
        raise PositionError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PositionError(f"{path} is not UTF-8 text (byte {error.start}); convert it, e.g. with iconv") from None


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then move it to `path`: the earlier file stays until the new one is complete.

    Raises PositionError where writing fails, as on a full disk; nothing of the new file is left then.
    """
    partial = path.with_name(path.name + ".tmp")
    try:
        write(partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a missing folder or a full disk by a RuntimeError
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise PositionError(f"{path} cannot be written: {reason}") from None
    finally:
        partial.unlink(missing_ok=True)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file of any size."""
    total = hashlib.new(algorithm)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total.update(chunk)
    return total.hexdigest()

"""Read text files and write files. Error messages have one line, and a failed write leaves no partial file."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..core import PositionError
from .messages import shorten

#: maximum size in bytes of a text that is read as a whole
LARGEST_TEXT = 2**30


def read_text(path: Path, errors: str = "strict", largest: int = LARGEST_TEXT) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Raises:
        PositionError: if the file cannot be read, is not a regular file (such as /dev/zero), is not UTF-8, or has more than
            `largest` bytes.
    """
    require_regular(path, largest)
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except OSError as error:
        raise PositionError(unreadable(path, error)) from None
    except UnicodeDecodeError as error:
        raise PositionError(
            f"{path}: not UTF-8 text, from byte {error.start}. Expected UTF-8. Convert it, for example with iconv."
        ) from None


def unreadable(path: object, error: Exception) -> str:
    """Return the message about a file that cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return f"{shorten(str(path), 200)}: cannot be read ({reason}). Expected a readable file. Check the path."


def unwritable(path: object, error: Exception) -> str:
    """Return the message about a file or folder that cannot be written."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return f"{path}: cannot be written ({reason}). Expected a writable folder with free space. Choose another folder."


def require_regular(path: Path, largest: int | None = None) -> None:
    """Raise PositionError unless this is a regular file of at most `largest` bytes.

    For example, the function raises this error for a folder, a device, a pipe or a missing file.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: the path contains a null character
        raise PositionError(unreadable(path, error)) from None
    if stat.S_ISDIR(found.st_mode):
        raise PositionError(f"{path}: this is a folder. Expected a file. Check the path.")
    if not stat.S_ISREG(found.st_mode):
        raise PositionError(
            f"{path}: a device or pipe cannot be read. Expected a regular file. Write its content to a file first."
        )
    if largest is not None and found.st_size > largest:
        raise PositionError(
            f"{path}: the file has {found.st_size:,} bytes. Expected at most {largest:,} bytes. Check that it is the right file."
        )


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file with `write`, then move it to `path`. The earlier file remains until the new one is complete.

    Raise PositionError if writing fails, for example on a full disk. The temporary file is removed.
    """
    partial = path.with_name(path.name + ".tmp")
    try:
        write(partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch raises a RuntimeError for a missing folder or a full disk
        raise PositionError(unwritable(path, error)) from None
    finally:
        partial.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Raise PositionError if the folder cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PositionError(unwritable(folder, error)) from None


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> list[str]:
    """Write files into a folder with `replace_file`, and return their names. `contents` maps the names to the contents."""
    for name, content in contents.items():
        data = content if isinstance(content, bytes) else content.encode()
        replace_file(folder / name, lambda partial, data=data: partial.write_bytes(data))  # type: ignore[misc]
    return list(contents)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file of any size."""
    total = hashlib.new(algorithm)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total.update(chunk)
    return total.hexdigest()


def digest_of(paths: Iterable[Path]) -> str:
    """Return one checksum of the names and the contents of these files."""
    return hashlib.sha256(b"".join(path.name.encode() + b"\0" + bytes.fromhex(digest(path)) for path in paths)).hexdigest()

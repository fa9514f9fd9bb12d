"""Read plain or gzipped text files line by line. The decompressed size is limited, and errors are one-line messages."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, TypeVar

from ..common.files import require_regular, unreadable
from ..core import PositionError

T = TypeVar("T")

LONGEST_LINE = 2**24  # maximum number of bytes of a line
#: a gzip file may expand to FREE_BYTES plus MOST_TIMES its size. For text, the ratio of the sizes is seldom above ten
FREE_BYTES, MOST_TIMES = 2**24, 100


class Lines:
    """The lines of a UTF-8 file, with their line feeds. Only a line feed ends a line.

    Raises:
        PositionError: On opening, if the file is missing or is not a regular file. On reading, if a line is not UTF-8 or has more
            than `LONGEST_LINE` bytes. On reading a gzip file, if the file is damaged or expands to too many bytes.
    """

    def __init__(self, path: Path):
        require_regular(path)
        self.path = path
        zipped = path.suffix == ".gz"
        try:
            self._limit = FREE_BYTES + MOST_TIMES * path.stat().st_size if zipped else None
            self._file: IO[Any] = gzip.open(path, "rb") if zipped else path.open("rb")  # noqa: SIM115
        except OSError as error:
            raise PositionError(unreadable(path, error)) from None

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        number, total = 0, 0
        try:
            while line := self._file.readline(LONGEST_LINE + 1):
                number, total = number + 1, total + len(line)
                if len(line) > LONGEST_LINE:
                    raise PositionError(
                        f"{self.path}, line {number}: more than {LONGEST_LINE:,} bytes. Expected one sentence per line. "
                        "Check that it is a text file."
                    )
                if self._limit is not None and total > self._limit:
                    raise PositionError(
                        f"{self.path}: the file expands to more than {self._limit:,} bytes, over {MOST_TIMES} times its size. "
                        "Expected text. Check the file, and decompress it."
                    )
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise PositionError(
                f"{self.path}, line {number}: not UTF-8 text, from byte {error.start} of the line. Expected UTF-8. "
                "Convert it, for example with iconv."
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise PositionError(
                f"{self.path}: damaged or truncated gzip, after line {number} ({error}). Expected a complete file. Make it again."
            ) from None


def in_step(files: Sequence[Iterator[T]], unequal: Callable[[list[int]], PositionError]) -> Iterator[tuple[T, ...]]:
    """Yield one tuple per line, with the line of each file.

    If the numbers of lines differ, raise the error that `unequal` returns for these numbers.
    """
    for number, row in enumerate(zip_longest(*files), 1):
        if None in row:
            raise unequal([number - (line is None) + sum(1 for _ in file) for line, file in zip(row, files)])
        yield row


def require_other_files(written: Iterable[Path], read: Iterable[Path], hint: str) -> None:
    """Raise PositionError if a command would overwrite a file that the command reads. Links to the file count as the file.

    Call this function before the first file is opened for writing. `hint` is the last sentence of the message.
    """
    inputs = list(read)
    for path in filter(os.path.exists, written):
        if any(os.path.exists(given) and os.path.samefile(path, given) for given in inputs):
            raise PositionError(
                f"{path}: the command would overwrite this file, which is an input. Expected another file. {hint}"
            )


def read_gzip(path: Path, name: str, largest: int) -> bytes:
    """Return the content of a gzip file. Raise PositionError if the file is damaged or expands to more than `largest` bytes."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(largest + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise PositionError(f"{name}: damaged gzip file. Expected a complete file. Download it again.") from None
    if len(data) > largest:
        raise PositionError(f"{name}: the file expands to more than {largest:,} bytes. Expected the corpus. Check the file.")
    return data

"""Extract the model archives of `from_pretrained` safely. fairseq 0.12 extracts all members, even to paths outside the folder."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import logging
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from fairseq import file_utils

from ...core import Refusal
from .errors import first_line

logger = logging.getLogger(__name__)

_MOST_MEMBERS = 10_000  # maximum number of files and folders
_MOST_BYTES = 2**36  # maximum size of all extracted files: 64 GiB
_LARGEST_READ = 2**20  # maximum number of bytes that tarfile reads at once, for example a long name in a header
_HEADER_BYTES = 2**25  # maximum number of bytes of all headers

_COMPRESSIONS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, ValueError, ArithmeticError, RecursionError)


def load_archive_file(archive_file: Any) -> str | None:
    """Return the folder of a model. As in fairseq, a tar archive is replaced with a folder that contains its members.

    All members are checked before the first member is written.

    Raises:
        Refusal: The model is not found, or the archive is damaged.
        Refusal: The archive exceeds `_MOST_MEMBERS`, `_MOST_BYTES` or the free disk space.
        Refusal: A member is not a file or folder, or its path is absolute or contains `..`.
    """
    try:
        resolved = file_utils.cached_path(archive_file, cache_dir=None)
    except (OSError, ValueError) as error:
        raise Refusal(
            f"{archive_file}: the model was not found ({first_line(error)}). Expected a folder, a tar archive or its address. "
            "Check the name."
        ) from None
    if os.path.isdir(resolved):
        return resolved
    logger.info(f"extracting archive file {archive_file}")
    path = Path(resolved)
    try:
        _replace_by_folder(path)
    except _Unsafe as error:
        raise Refusal(f"{path}: the archive {error}. Nothing was extracted.") from None
    except _DAMAGED as error:
        raise Refusal(
            f"{path}: the archive cannot be extracted ({first_line(error)}). Expected a complete tar archive, which may be "
            "compressed with gzip, bzip2 or xz. Download it again."
        ) from None
    return resolved


class _Unsafe(Exception):
    """Error for an archive that must not be extracted. The caller puts the words "the archive" before the message."""


def _replace_by_folder(path: Path) -> None:
    """Extract the archive into a new folder in the same directory, then move this folder to the path of the archive."""
    with _opened(path, _HEADER_BYTES) as archive:
        members = _checked(archive)
    room = shutil.disk_usage(path.parent).free
    need = sum(member.size for member in members)
    if need > room:
        raise _Unsafe(f"needs {need / 1e9:.1f} GB, and {path.parent} has {room / 1e9:.1f} GB. Expected enough free space")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:100]}.") as folder:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # some releases of Python lack tarfile filters
        with _opened(path, _MOST_BYTES + _HEADER_BYTES) as archive:
            for member in members:
                archive.extract(member, folder, **safely)
        source = Path(folder, _root(members))
        path.unlink()
        source.rename(path)
    path.chmod(0o755)  # the permissions of a temporary folder are restricted


def _checked(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Return all members. Raise _Unsafe for the first member that must not be extracted."""
    members, total = [], 0
    for member in archive:
        name = repr(member.name[:80])
        parts = PurePosixPath(member.name).parts
        if os.path.isabs(member.name):
            raise _Unsafe(f"contains the absolute path {name}. Expected relative paths inside the archive")
        if ".." in parts:
            raise _Unsafe(f"contains the path {name} outside its folder. Expected relative paths inside the archive")
        if not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
            kind = "link" if member.issym() or member.islnk() else "device or special file"
            raise _Unsafe(f"contains the {kind} {name}. Expected only files and folders")
        if member.size < 0:
            raise _Unsafe(f"contains {name} with a negative size. Expected a complete tar archive")
        members.append(member)
        total += member.size
        if len(members) > _MOST_MEMBERS:
            raise _Unsafe(f"contains more than {_MOST_MEMBERS:,} files. Expected at most {_MOST_MEMBERS:,}")
        if total > _MOST_BYTES:
            raise _Unsafe(f"contains more than {_MOST_BYTES >> 30} GiB. Expected at most {_MOST_BYTES >> 30} GiB")
    if not any(member.isreg() for member in members):
        raise _Unsafe("contains no file. Expected checkpoints and dictionaries")
    return members


def _root(members: list[tarfile.TarInfo]) -> str:
    """Return the name of the single folder that contains all files of the archive. Return "" if the files are not in one."""
    paths = [PurePosixPath(member.name) for member in members]
    first = {path.parts[0] for path in paths if path.parts}
    inside = all(len(path.parts) > 1 or member.isdir() for path, member in zip(paths, members))
    return first.pop() if len(first) == 1 and inside else ""


@contextlib.contextmanager
def _opened(path: Path, limit: int) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, and read at most `limit` decompressed bytes of it. Bytes that are skipped are not counted."""
    with path.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        opened = next((reader for magic, reader in _COMPRESSIONS if start.startswith(magic)), None)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(opened(raw)) if opened else raw
            yield stack.enter_context(tarfile.open(fileobj=_Bounded(file, limit), mode="r:"))


class _Bounded:
    """Limit the number of bytes that tarfile reads. Without a limit, tarfile reads headers of any size into memory."""

    def __init__(self, file: Any, limit: int):
        self.file, self.left = file, limit

    def read(self, size: int = -1) -> bytes:
        self.left -= size
        if not 0 <= size <= _LARGEST_READ or self.left < 0:
            raise _Unsafe("contains headers that are too large. Expected a complete tar archive of files and folders")
        return self.file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        if position > 2 * _MOST_BYTES:
            raise _Unsafe(f"contains more than {_MOST_BYTES >> 30} GiB. Expected at most {_MOST_BYTES >> 30} GiB")
        return self.file.seek(position, whence)

    def tell(self) -> int:
        return self.file.tell()


def apply() -> None:
    file_utils.load_archive_file = load_archive_file

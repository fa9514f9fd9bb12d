"""Get archives with known checksums from public addresses, a mirror or a folder, and extract files from them.

A mirror or a folder replaces the public addresses. The mirror or folder must contain each file at the path of the file's public
address, for example MIRROR/wmt13/NAME.tgz. The files must have the known checksums, unless the caller passes other checksums.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tarfile
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.files import digest, unwritable
from ..core import PositionError
from .download import CHUNK, download, local_folder, read_sums

_ALGORITHMS = {32: "md5", 64: "sha256"}  # number of digits of a checksum -> hash function


@dataclass(frozen=True)
class Archive:
    """A file that can be downloaded from one or several addresses."""

    addresses: tuple[str, ...]  # the first address determines path and name of the file
    checksum: str  # SHA-256, or MD5 if no SHA-256 was published
    size: int = 0  # number of bytes. 0 if unknown

    @property
    def place(self) -> str:
        """Return the path of the file on its public host.

        The path identifies the archive. The file name does not, because different archives can have the same file name.
        """
        return urllib.parse.urlsplit(self.addresses[0]).path.lstrip("/")


@dataclass(frozen=True)
class Store:
    """The origin of archives, and the folder of downloads."""

    downloads: Path  # contains each file at HOST/PATH
    origin: str = ""  # mirror or folder that replaces the public addresses
    # file in the format of sha256sum, with the checksum and the path of each archive at the origin. The checksums in this file
    # replace the known checksums
    checksums: Path | None = None
    pause: float = 1.0  # seconds before the first retry of a download

    def get(self, archives: Iterable[Archive]) -> dict[Archive, Path]:
        """Return a mapping from each archive to its local file. Download missing files, and check all checksums.

        Before any download, raise PositionError if the disk space is not sufficient.
        """
        archives = tuple(archives)
        folder = local_folder(self.origin) if self.origin else None
        if folder is None:
            missing = [archive for archive in archives if not self._path(archive).is_file()]
            require_room(self.downloads, sum(archive.size for archive in missing), "the downloads")
        return {archive: self._from_folder(archive, folder) if folder else self._download(archive) for archive in archives}

    def expected(self, archive: Archive) -> str:
        """Return the checksum that an archive must have. Raise PositionError if the file `checksums` does not contain it."""
        if self.checksums is None:
            return archive.checksum
        if not self.checksums.is_file():
            raise PositionError(
                f"{self.checksums}: no such file. Expected a file of sha256sum with paths such as {archive.place}."
            )
        found = read_sums(self.checksums, str(self.checksums)).get(archive.place)
        if found is None:
            raise PositionError(
                f"{self.checksums}: no checksum of {archive.place}. Expected a line for every archive. Add the line."
            )
        return found

    def _from_folder(self, archive: Archive, folder: Path) -> Path:
        path = folder / archive.place
        if not path.is_file():
            raise PositionError(f"{path}: no such file. Expected each archive at the path of its address. Copy the file there.")
        wrong = self._difference(archive, path)
        if wrong:
            raise PositionError(f"{path}: not the public file ({wrong}). Copy or download the file again.")
        return path

    def _path(self, archive: Archive) -> Path:
        host = urllib.parse.urlsplit(self.origin or archive.addresses[0]).netloc
        return self.downloads / host.replace(":", "_") / archive.place

    def _download(self, archive: Archive) -> Path:
        path = self._path(archive)
        path.parent.mkdir(parents=True, exist_ok=True)
        # the lock file is not removed, because another process may be waiting for it
        with path.with_name(path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_file() and not self._difference(archive, path):
                return path
            failures = []
            for address in (f"{self.origin.rstrip('/')}/{archive.place}",) if self.origin else archive.addresses:
                print(f"{address}{f': {archive.size / 1e6:,.0f} MB' if archive.size else ''}", flush=True)
                try:
                    wrong = self._difference(archive, path) if download(address, path, self.pause) else "there is no such file"
                except PositionError as error:
                    if "cannot be written" in str(error):
                        raise
                    wrong = str(error).removeprefix(f"{address}: ").partition(". To resume")[0]
                if not wrong:
                    return path
                path.unlink(missing_ok=True)
                failures.append(f"{address}: {wrong}")
                print(failures[-1], file=sys.stderr, flush=True)
        raise PositionError(
            f"{path.name}: no address has the expected file ({'; '.join(failures)}). "
            "Set DATA_FROM (--from) to a mirror or to a folder with the file."
        )

    def _difference(self, archive: Archive, path: Path) -> str:
        """Return how a file differs from the expected size or checksum. Return "" if size and checksum agree."""
        expected = self.expected(archive)
        if self.checksums is None and archive.size and path.stat().st_size != archive.size:
            return f"{path.stat().st_size:,} bytes instead of {archive.size:,}"
        algorithm = _ALGORITHMS[len(expected)]
        found = digest(path, algorithm)
        return "" if found == expected else f"{algorithm} checksum {found} instead of {expected}"


def require_room(folder: Path, need: int, what: str) -> None:
    """Raise PositionError if less than `need` bytes of the disk are free."""
    folder.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(folder).free
    if need > room:
        raise PositionError(
            f"{folder}: {room / 1e9:.1f} GB of disk space are free, but {what} require {need / 1e9:.1f} GB. "
            "Free disk space, or choose another folder."
        )


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Copy members of a tar archive to files. `wanted` is a mapping from the name of a member to the path of the written file.

    Raise PositionError if the archive is damaged or lacks a member.
    """
    missing = dict(wanted)
    if not missing:
        return
    try:
        with tarfile.open(archive, mode="r|*") as members:
            for member in members:
                name = member.name.removeprefix("./")
                if name in missing and member.isfile():
                    _copy(members.extractfile(member), missing[name])
                    del missing[name]
                if not missing:
                    return
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is None:  # gzip raises an OSError without errno for a file in another format
            raise PositionError(f"{archive}: damaged ({error}). Remove it and run the command again.") from None
        raise PositionError(unwritable(next(iter(missing.values())).parent, error)) from None
    raise PositionError(f"{archive}: these files are missing in the archive: {', '.join(missing)}. Download the archive again.")


def _copy(source, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with part.open("wb") as file:
        shutil.copyfileobj(source, file, CHUNK)
    os.replace(part, target)

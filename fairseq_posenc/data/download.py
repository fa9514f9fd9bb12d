"""Get files from a folder or from the network. Downloads are resumed, retried after errors, and checked by their SHA-256.

The expected checksum of a file is read from SHA256SUMS next to the file, or from the record of earlier downloads. If neither
contains the file, its first download is trusted. The caller reads the file and then calls `record_downloads`, so that later
downloads from this address must have the same checksum. If the network has sent a web page instead of the data, the caller fails
to read the file, and the page is not recorded.
"""

from __future__ import annotations

import errno
import functools
import http.client
import itertools
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from ..common.files import digest, require_regular, unwritable
from ..core import PositionError

SUMS = "SHA256SUMS"
TRIES = 5  # maximum number of requests per file
TIMEOUT = 60.0  # maximum number of seconds without received data
CHUNK = 1 << 20  # number of bytes that are read at once
_LARGEST_SUMS = 2**24  # maximum number of bytes of SHA256SUMS
_ABSENT = (404, 410)  # HTTP status if the file does not exist
_FINAL = (400, 401, 403, 405, 451)  # HTTP status of errors that a retry cannot solve
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EISDIR)


def local_folder(origin: str) -> Path | None:
    """Return a source of files as a folder, or None for an http or https address.

    Raise PositionError for an invalid address, and for a folder that does not exist.
    """
    try:
        parts = urllib.parse.urlsplit(origin)
        online = parts.scheme in ("http", "https")
        if online and not (parts.hostname and (parts.port is None or parts.port)):
            raise ValueError("the host is missing")
    except ValueError as error:  # invalid, such as http://[::1
        raise PositionError(
            f"{origin!r}: not an address ({error}). Expected http://HOST/PATH, https://HOST/PATH or a folder. Check the spelling."
        ) from None
    if online:
        return None
    folder = Path(urllib.request.url2pathname(parts.path) if parts.scheme == "file" else origin)
    if not folder.is_dir():
        raise PositionError(f"{origin}: no such folder. Expected a folder, http://ADDRESS or https://ADDRESS.")
    return folder


@dataclass(frozen=True)
class Source:
    """A source of files: a folder, or an address to which file names are appended."""

    origin: str
    downloads: Path  # folder of the downloads
    record: Path  # file with checksums and addresses of earlier downloads, in the format of sha256sum
    pause: float = 1.0  # seconds before the first retry. The time doubles with each retry
    used: list[Path] = field(default_factory=list, init=False)  # local paths that `get` has returned
    # file name -> SHA-256, for the downloads that `record_downloads` will record
    _unrecorded: dict[str, str] = field(default_factory=dict, init=False)

    @functools.cached_property
    def folder(self) -> Path | None:
        """Return `origin` as a folder, or None if `origin` is an http or https address."""
        return local_folder(self.origin)

    def get(self, name: str) -> Path | None:
        """Return the local path of a file. Download the file if necessary. Return None if the source does not have the file.

        Raise PositionError if the file has a wrong checksum.
        """
        path = (self.folder or self.downloads) / name
        if self.folder is None and not (path.is_file() and digest(path) == self._known(name)):
            if not self._download(name):
                return None
        elif not path.is_file():
            return None
        self._check(path, name)
        self.used.append(path)
        return path

    def address(self, name: str) -> str:
        """Return the path or the address of a file of this source."""
        return str(self.folder / name) if self.folder else f"{self.origin.rstrip('/')}/{urllib.parse.quote(name)}"

    # --- checksums ---

    @functools.cached_property
    def _sums(self) -> dict[str, str]:
        if self.folder is None and not self._download(SUMS):
            return {}
        return read_sums((self.folder or self.downloads) / SUMS, self.address(SUMS))

    def _known(self, name: str) -> str | None:
        listed = self._sums.get(name) or self._unrecorded.get(name)
        return listed or (None if self.folder else read_sums(self.record, str(self.record)).get(self.address(name)))

    def _check(self, path: Path, name: str) -> None:
        found, expected = digest(path), self._known(name)
        if expected is None and self.folder is None:
            self._unrecorded[name] = found
        elif expected not in (None, found):
            where = self.address(SUMS) if name in self._sums else f"the earlier download in {self.record}"
            raise PositionError(
                f"{self.address(name)}: wrong checksum {found} (SHA-256). Expected {expected}, from {where}. "
                "Check the source, or remove the line if the file was updated."
            )

    def record_downloads(self) -> None:
        """Record the checksum of every file that was downloaded for the first time.

        Files that SHA256SUMS lists are not recorded. Call this function after the files have been read.
        """
        for name, found in self._unrecorded.items():
            try:
                self.record.parent.mkdir(parents=True, exist_ok=True)
                with self.record.open("a", encoding="utf-8") as record:
                    record.write(f"{found}  {self.address(name)}\n")
            except OSError as error:
                raise PositionError(unwritable(self.record, error)) from None
            print(f"{self.address(name)}: no sha256 was known; taken on trust, {found} is now in {self.record}", flush=True)
        self._unrecorded.clear()

    def _download(self, name: str) -> bool:
        return download(self.address(name), self.downloads / name, self.pause)


def download(address: str, path: Path, pause: float = 1.0) -> bool:
    """Download a file, or resume a partial download. Retry after errors. Return False if the address has no such file."""
    for attempt in itertools.count(1):
        try:
            return _attempt(address, path)
        except (OSError, http.client.HTTPException) as error:
            status = getattr(error, "code", None)
            if status in _ABSENT:
                return False
            if getattr(error, "errno", None) in _DISK:
                raise PositionError(unwritable(path, error)) from None
            reason = f"{status} {error.reason}" if status else str(getattr(error, "reason", "") or error or type(error).__name__)
        if status in _FINAL or attempt == TRIES:
            raise PositionError(f"{address}: the download failed ({reason}). To resume the download, run the command again.")
        print(f"{address}: {reason}; trying again in {pause:g} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause *= 2


def _attempt(address: str, path: Path) -> bool:
    """Download a file with one request. A partial download is resumed only if the file on the server has not changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part, tag = (path.with_name(path.name + ending) for ending in (".part", ".part.tag"))
    begun = part.stat().st_size if part.is_file() and tag.is_file() else 0
    headers = {"Range": f"bytes={begun}-", "If-Range": tag.read_text(encoding="utf-8")} if begun else {}
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the partial file is at least as long as the complete file
            part.unlink()
            raise ConnectionError("the file changed during the download") from None
        raise
    with response:
        resumed = response.status == 206
        validator = response.headers["ETag"] or response.headers["Last-Modified"] or ""
        if validator and not validator.startswith("W/"):
            tag.write_text(validator, encoding="utf-8")
        else:
            tag.unlink(missing_ok=True)
        with part.open("ab" if resumed else "wb") as file:
            length = response.length  # None if the length is not known
            expected = None if length is None else length + (begun if resumed else 0)
            while chunk := response.read(CHUNK):
                file.write(chunk)
    if expected is not None and part.stat().st_size != expected:
        raise ConnectionError(f"the connection ended after {part.stat().st_size} of {expected} bytes")
    os.replace(part, path)
    tag.unlink(missing_ok=True)
    return True


def read_sums(path: Path, name: str) -> dict[str, str]:
    """Read a file in the format of sha256sum. Return a mapping from file name to checksum, or {} if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        require_regular(path, _LARGEST_SUMS)
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise PositionError(
            f"{name}: not UTF-8 text, from byte {error.start}. Expected the output of sha256sum. Create the file again."
        ) from None
    parts = (line.partition(" ") for line in lines)
    return {file.lstrip(" *").removeprefix("./"): total.lower() for total, _, file in parts if file}

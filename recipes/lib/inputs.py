"""Print a checksum of the content of each input file of a recipe.

inputs.py CACHE NAME PATH [NAME PATH ...]

The output is one line with NAME:CHECKSUM for each file, separated by blanks. If PATH does not exist, the file is PATH.gz. The
checksum of a gzipped file is the checksum of its decompressed content. If a file is compressed or decompressed, its checksum
therefore does not change.

CACHE contains the size, the modification time and the checksum of each file from an earlier call. The checksum is computed
again only if the size or the time differs. If a file is missing, its checksum is read from CACHE, because the input is not
needed after the first stage. If CACHE does not contain the file either, the output does not contain its name.
"""

import contextlib
import gzip
import hashlib
import json
import os
import signal
import sys
import zlib

BLOCK = 1 << 20  # number of bytes that are read at once
DIGITS = 16  # number of hexadecimal digits of a checksum


def checksum(path: str) -> str:
    """Return the checksum of the content, or "damaged" for a damaged gzip file."""
    found = hashlib.sha256()
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return "damaged"
    return found.hexdigest()[:DIGITS]


def facts(path: str, known: list | None) -> list | None:
    """Return the size, the modification time in nanoseconds, and the checksum of a file. `known` contains earlier facts.

    Return `known` if the file is missing or cannot be read.
    """
    for file in filter(os.path.isfile, (path, f"{path}.gz")):
        with contextlib.suppress(OSError):
            now = os.stat(file)
            same = known and known[:2] == [now.st_size, now.st_mtime_ns]
            return known if same else [now.st_size, now.st_mtime_ns, checksum(file)]
    return known


def read(cache: str) -> dict[str, list]:
    """Return the facts of each file in the cache. A cache that is missing or damaged has no facts."""
    try:
        with open(cache, encoding="utf-8") as file:
            return {path: [int(size), int(time), str(found)] for path, (size, time, found) in json.load(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write(cache: str, found: dict[str, list]) -> None:
    """Write the cache, if its folder exists. Errors are ignored, because the cache only saves time."""
    part = f"{cache}.{os.uname().nodename}.{os.getpid()}.part"  # several machines may share the folder
    with contextlib.suppress(OSError):
        with open(part, "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(part, cache)


def main(cache: str, *given: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interruption prints no traceback
    before = read(cache)
    found = {path: now for path in given[1::2] if (now := facts(path, before.get(path)))}
    if found != before:
        write(cache, found)
    print(*(f"{name}:{found[path][2]}" for name, path in zip(given[::2], given[1::2]) if path in found))


if __name__ == "__main__":
    main(*sys.argv[1:])

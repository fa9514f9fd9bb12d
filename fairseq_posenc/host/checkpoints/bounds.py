"""Limits for the content of checkpoints.

Without limits, loading a small file could need terabytes of memory or several hours.
"""

from __future__ import annotations

import argparse
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DEEPEST = 32  # maximum depth of nested containers
_MOST_VALUES = 2_000_000  # maximum number of values in a checkpoint
_MOST_SETTINGS = 100_000  # maximum number of values in the configuration of a checkpoint
_LONGEST_TEXT = 1_000_000  # maximum number of characters of a text
_LARGEST_ARRAY = 2**20  # maximum number of bytes of a numpy array, such as the values of a meter
_MOST_RECORDS = 1_000_000  # maximum number of records of the zip archive

#: description of the problem if an archive is truncated or damaged
UNREADABLE = "the archive cannot be read"


def problem_of_archive(path: Path) -> str | None:
    """Return a description of what is wrong with the zip records of a torch.save file, or None.

    torch.save does not compress, so all records together must be smaller than the file. For a file that is not a zip archive,
    the result is None.
    """
    try:
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return UNREADABLE
    if len(records) > _MOST_RECORDS:
        return f"the archive has {len(records):,} records, more than {_MOST_RECORDS:,}"
    compressed = next((record.filename for record in records if record.compress_type != zipfile.ZIP_STORED), None)
    if compressed is not None:
        return f"the record {compressed[:80]!r} is compressed, which torch.save never does"
    if sum(record.file_size for record in records) > path.stat().st_size:
        return "the records are larger than the file"
    if records and min(record.header_offset for record in records) > 0:
        return "the archive does not begin at the start of the file"
    return None


def problem_of_state(state: Any) -> str | None:
    """Return a description of the first problem in a loaded checkpoint, or None.

    Problems are values that exceed a limit, tensors of unsupported types, and tensors that are larger than their storage.
    Tensors may share a storage. All tensors together must not be larger than 8 times the size of all storages.
    """
    import torch

    tensors: dict[tuple[Any, ...], int] = {}
    storages: dict[int, int] = {}
    try:
        for value in _walk(state, _MOST_VALUES):
            if isinstance(value, torch.Tensor):
                if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized or value.is_nested:
                    return "a tensor is sparse, quantized, nested or without data"
                storage, size = value.untyped_storage(), value.numel() * value.element_size()
                if size > storage.nbytes():
                    return f"a tensor of shape {tuple(value.shape)} is larger than its storage of {storage.nbytes():,} bytes"
                storages[storage.data_ptr()] = storage.nbytes()
                tensors[value.data_ptr(), tuple(value.shape), value.stride(), value.dtype] = size
            elif getattr(value, "nbytes", 0) > _LARGEST_ARRAY:
                return f"a numpy array has {value.nbytes:,} bytes"
        if sum(tensors.values()) > 8 * sum(storages.values()):
            return "the tensors overlap in memory"
        for name in ("cfg", "args") if isinstance(state, dict) else ():
            list(_walk(state.get(name), _MOST_SETTINGS, f"{name}: "))
    except _TooMuch as error:
        return str(error)
    return None


class _TooMuch(Exception):
    """Error for a value that exceeds a limit."""


def _walk(value: Any, limit: int, where: str = "") -> Iterator[Any]:
    """Yield a value and all values inside it. Raise _TooMuch if a limit is exceeded. The message begins with `where`.

    A container that occurs twice is counted twice, because omegaconf creates a separate copy for each occurrence.
    """
    pending, count = [(value, 0)], 0
    while pending:
        value, depth = pending.pop()
        count += 1
        if count > limit:
            raise _TooMuch(f"{where}more than {limit:,} values")
        inner: Any = ()
        if isinstance(value, argparse.Namespace):
            inner = vars(value)
        elif isinstance(value, (dict, list, tuple, set, frozenset)):
            inner = value
        if isinstance(value, int) and value.bit_length() > 64:
            raise _TooMuch(f"{where}an integer of more than 64 bits")
        if isinstance(value, (str, bytes)) and len(value) > _LONGEST_TEXT:
            raise _TooMuch(f"{where}a text of more than {_LONGEST_TEXT:,} characters")
        if len(inner) > limit or (inner and depth >= _DEEPEST):
            raise _TooMuch(f"{where}more than {_DEEPEST} containers in each other or {limit:,} values")
        if isinstance(inner, dict):
            pending += ((key, depth + 1) for key in inner)
            inner = inner.values()
        pending += ((item, depth + 1) for item in inner)
        yield value

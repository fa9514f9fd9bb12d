"""Checks of binary side files.

DATA/SPLIT.SOURCE-TARGET.SOURCE.side.json contains the checksums of the side files, of the text and of the relation labels.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset

from ...common.files import digest, read_text, require_regular
from ...common.messages import shorten
from ...data.side.files import WORDS, SideError

logger = logging.getLogger(__name__)

BINARISE = "Run posenc side binarise again."
RELATIONS = "dict.relations.txt"
_VERSION = 1
_COMPLETE = f"Expected a complete file. {BINARISE}"
_RELATIONS = f"Expected lines such as 'nsubj 12'. {BINARISE}"
_LARGEST_DICTIONARY = 2**26  # maximum number of bytes of dict.relations.txt
_MAGIC = b"MMIDIDX\0\0"  # first bytes of an index file in fairseq's format mmap
_HEADER = struct.Struct("<9sQBQ")  # _MAGIC, version, data type, number of rows
_TYPES = indexed_dataset._code_to_dtype
_WRONG = {
    "heads": "the heads are not a tree. Expected one root, and words of the sentence as heads",
    "order": "not a reordering. Expected each word once",
    "relations": f"a relation number is too large. Expected the relations of {RELATIONS}",
}
_AT_ONCE = 2**22  # approximate number of values that a check reads at once


def file_of(prefix: Path) -> Path:
    return Path(f"{prefix}.side.json")


def load_relations(path: Path) -> Dictionary:
    """Return the relation labels of a file. Raise SideError if the file is damaged."""
    require_regular(path, _LARGEST_DICTIONARY)
    try:
        found = Dictionary.load(str(path))
    except Exception as error:  # fairseq raises errors of any kind for a damaged file
        reason = shorten(str(error) or type(error).__name__, 80)
        raise SideError("SIDE-FORMAT", str(path), f"damaged ({reason}). {_RELATIONS}") from None
    if not all(type(count) is int and 0 <= count < 2**63 for count in found.count):
        raise SideError("SIDE-FORMAT", str(path), f"a count is not a number of 64 bits. {_RELATIONS}")
    return found


def digest_of_relations(dictionary: Dictionary) -> str:
    """Return a hash of the relation labels in the order of their indices."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()


def describe(prefix: Path, files: Mapping[str, Sequence[Path]], relations: Dictionary | None) -> str:
    """Return the content of the file of checksums. `files` contains the temporary paths of each kind of side file."""
    fields = {
        "version": _VERSION,
        "text": _digest_of(_paths(prefix)),
        "relations": None if relations is None else digest_of_relations(relations),
        "files": {kind: _digest_of(paths) for kind, paths in files.items()},
    }
    return json.dumps(fields, indent=1) + "\n"


def require_unchanged(prefix: Path, kinds: Iterable[str], labelled: Iterable[str]) -> bool:
    """Compare the side files with their checksums.

    Return True if all checksums are correct. Return False if the file of checksums does not exist. Earlier versions of this
    project did not write checksums.

    Raises:
        SideError: The text, a side file or dict.relations.txt differs from its checksum.
    """
    path = file_of(prefix)
    if not path.exists():
        logger.warning(f"{prefix}: side files of an earlier version have no checksum; posenc side binarise adds it")
        return False
    try:
        fields = json.loads(read_text(path, largest=2**20))
        text, relations, files = fields["text"], fields["relations"], dict(fields["files"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        reason = shorten(str(error), 80)
        raise SideError(
            "SIDE-FORMAT", str(path), f"damaged ({reason}). Expected the checksums of the side files. {BINARISE}"
        ) from None
    again = f"Expected the file that posenc side binarise wrote. {BINARISE}"
    if _digest_of(_paths(prefix)) != text:
        raise SideError("SIDE-CHANGED", str(prefix), f"the text changed after posenc side binarise. {again}")
    for kind in (*kinds, WORDS):
        if files.get(kind) != _digest_of(_paths(Path(f"{prefix}.{kind}"))):
            raise SideError("SIDE-CHANGED", f"{prefix}.{kind}.bin", f"the file was changed or belongs to another text. {again}")
    if set(kinds) & set(labelled) and relations != digest_of_relations(load_relations(prefix.with_name(RELATIONS))):
        raise SideError(
            "SIDE-CHANGED", str(prefix.with_name(RELATIONS)), f"the numbers of the labels differ from {prefix.name}. {again}"
        )
    return True


def _paths(prefix: Path) -> list[Path]:
    return [Path(f"{prefix}.{ending}") for ending in ("bin", "idx")]


def _digest_of(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        require_regular(path)
        total.update(bytes.fromhex(digest(path)))
    return total.hexdigest()


def require_whole(path: str) -> None:
    """Raise SideError if an indexed file in the format mmap is truncated, empty or damaged.

    Call this function before fairseq maps the file into memory.
    """
    index, data = Path(f"{path}.idx"), Path(f"{path}.bin")
    for file in (index, data):
        require_regular(file)
    try:
        with index.open("rb") as file:
            header = file.read(_HEADER.size)
        magic, version, code, count = _HEADER.unpack(header)
        if magic != _MAGIC or version != 1 or code not in _TYPES:
            raise ValueError("the header is wrong")
        if index.stat().st_size != _HEADER.size + 12 * count:  # per row: 4 bytes for the size and 8 bytes for the offset
            raise ValueError(f"the length does not match {count:,} rows")
        sizes = np.fromfile(index, np.int32, count, offset=_HEADER.size).astype(np.int64)
        places = np.fromfile(index, np.int64, count, offset=_HEADER.size + 4 * count)
        width = np.dtype(_TYPES[code]).itemsize
        if (sizes < 0).any() or (places != (np.cumsum(sizes) - sizes) * width).any():
            raise ValueError("rows overlap or have gaps")
    except (OSError, ValueError, OverflowError, MemoryError, struct.error) as error:
        reason = shorten(str(error) or type(error).__name__, 80)
        raise SideError("SIDE-FORMAT", str(index), f"damaged or truncated ({reason}). {_COMPLETE}") from None
    found, wanted = data.stat().st_size, int(sizes.sum()) * width
    if found != wanted or not found:
        detail = f"{found:,} bytes, but {index.name} requires {wanted:,}. {_COMPLETE}"
        raise SideError("SIDE-FORMAT", str(data), detail)


def open_rows(path: str) -> Any:
    """Return the rows of a binary side file. Raise SideError if the file is truncated, empty or damaged."""
    require_whole(path)
    return indexed_dataset.make_dataset(path, "mmap")


def text_sizes(prefix: Path) -> np.ndarray:
    """Return the number of tokens of every sentence of a binary text. Raise SideError for damaged files."""
    index = Path(f"{prefix}.idx")
    if index.is_file():
        with index.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                require_whole(str(prefix))
    try:
        text = data_utils.load_indexed_dataset(str(prefix), None)
        return np.array(text.sizes)  # a copy, because the data set unmaps its file when it is deleted
    except Exception as error:  # fairseq raises errors of any kind for a damaged file
        reason = shorten(str(error) or type(error).__name__, 80)
        raise SideError("SIDE-FORMAT", str(index), f"damaged or truncated ({reason}). Run fairseq-preprocess again.") from None


def require_fit(prefix: Path, rows: Mapping[str, Any], relations: int | None) -> None:
    """Check the length of every row, and the values of heads, orders and relations.

    A row of heads, relations or orders must have one entry per word. A row of edges must have three entries per edge. A row of
    the kind `words` contains one entry per token. Without checksums, it must have at least as many entries as the sentence has
    words, because the versions of this project without checksums wrote no words without tokens. `relations` is the number of
    relation labels. If `relations` is None, the values of relations are not checked.

    Raises:
        SideError: A row does not fit its sentence. The message names the first such sentence.
    """
    ends = np.cumsum(rows[WORDS].sizes.astype(np.int64))
    words = np.zeros(0, np.int64) if not len(ends) else _numbers(rows[WORDS])[ends - 1].astype(np.int64) + 1  # with </s>
    for kind, found in rows.items():
        sizes = found.sizes.astype(np.int64)
        if kind == "edges":
            wrong, detail = sizes % 3 != 0, "numbers. Expected a multiple of 3"
        elif kind == WORDS:
            wrong = (sizes < words) & (not file_of(prefix).exists())
            detail = "tokens, fewer than words. Expected at least one token per word"
        else:
            wrong, detail = sizes != words, "entries. Expected one per word of the sentence"
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            raise SideError("SIDE-LEN", f"{prefix}.{kind}.idx, sentence {place + 1}", f"{sizes[place]} {detail}. {BINARISE}")
    for kind, found in rows.items():
        if kind in ("heads", "order") or (kind == "relations" and relations is not None):
            _require_numbers(prefix, kind, found, words, relations)


def _require_numbers(prefix: Path, kind: str, rows: Any, words: np.ndarray, relations: int | None) -> None:
    """Check the values of all rows of one kind.

    Heads and orders must be word indices. Relations must be indices of labels. The heads of a sentence must have one root. The
    sum of the n word indices of an order must be n (n - 1) / 2, as in a permutation.
    """
    numbers, ends = _numbers(rows), np.cumsum(words)
    first = 0
    while first < len(words):
        last = max(first + 1, int(np.searchsorted(ends, (ends[first - 1] if first else 0) + _AT_ONCE)))
        start = int(ends[first - 1]) if first else 0
        part, of = numbers[start : ends[last - 1]].astype(np.int64), words[first:last]
        begins = np.concatenate([[0], np.cumsum(of)[:-1]])
        limit = relations if kind == "relations" else np.repeat(of, of)
        wrong = np.add.reduceat((part < 0) | (part >= limit), begins) > 0
        if kind == "heads":
            wrong |= np.add.reduceat(part == 0, begins) != 1
        if kind == "order":
            wrong |= np.add.reduceat(part, begins) != of * (of - 1) // 2
        if wrong.any():
            place = first + int(np.flatnonzero(wrong)[0])
            raise SideError("SIDE-FORMAT", f"{prefix}.{kind}.bin, sentence {place + 1}", f"{_WRONG[kind]}. {BINARISE}")
        first = last


def _numbers(rows: Any) -> np.ndarray:
    """Return all rows concatenated, as a view of the mapped file."""
    return np.frombuffer(rows._bin_buffer, dtype=rows._index.dtype)

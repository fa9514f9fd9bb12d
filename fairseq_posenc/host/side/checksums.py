"""Checks of binary side files.

DATA/SPLIT.SOURCE-TARGET.SOURCE.side.json contains the checksums of the side files, of the text and of the relation labels.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset

from ...common.files import digest, read_text, require_regular
from ...common.messages import shorten
from ...core import PositionError
from ...data.side.files import WORDS, SideError

BINARISE = "Run posenc side binarise again."
RELATIONS = "dict.relations.txt"
_VERSION = 1
_AGAIN = "Expected a text that fairseq-preprocess wrote. Run fairseq-preprocess again."
_RELATIONS = f"Expected lines such as 'nsubj 12'. {BINARISE}"
_LARGEST_DICTIONARY = 2**26  # maximum number of bytes of dict.relations.txt
_MAGIC = b"MMIDIDX\0\0"  # first bytes of an index file in fairseq's format mmap
_HEADER = struct.Struct("<9sQBQ")  # _MAGIC, version, data type, number of rows
_TYPES = indexed_dataset._code_to_dtype


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


def require_unchanged(prefix: Path, kinds: Iterable[str], labelled: Iterable[str]) -> None:
    """Compare the text, the side files and the relation labels with their checksums.

    Raises:
        SideError: The file of checksums does not exist, or another file differs from its checksum.
    """
    text, relations, files = _recorded(prefix)
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


def _recorded(prefix: Path) -> tuple[str, str | None, dict[str, str]]:
    """Return the recorded checksums of the text, of the relation labels and of each kind of side file."""
    path = file_of(prefix)
    if not path.exists():  # earlier versions of this project wrote no checksums
        raise SideError("SIDE-MISSING", str(path), f"no such file. Expected the checksums of the side files. {BINARISE}")
    try:
        fields = json.loads(read_text(path, largest=2**20))
        return fields["text"], fields["relations"], dict(fields["files"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        reason = shorten(str(error), 80)
        raise SideError(
            "SIDE-FORMAT", str(path), f"damaged ({reason}). Expected the checksums of the side files. {BINARISE}"
        ) from None


def digests_of_files(prefixes: Sequence[Path], kinds: Iterable[str]) -> dict[str, str]:
    """Return one checksum of the text of these parts, and one of each kind of their side files.

    Raises:
        SideError: The file of checksums of a part does not exist, or is damaged.
    """
    total = {name: hashlib.sha256() for name in ("text", *sorted(kinds))}
    for prefix in prefixes:
        text, _, files = _recorded(prefix)
        for name, found in total.items():
            found.update(str(text if name == "text" else files.get(name)).encode())
    return {name: found.hexdigest()[:16] for name, found in total.items()}


def _paths(prefix: Path) -> list[Path]:
    return [Path(f"{prefix}.{ending}") for ending in ("bin", "idx")]


def _digest_of(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        require_regular(path)
        total.update(bytes.fromhex(digest(path)))
    return total.hexdigest()


def text_sizes(prefix: Path) -> np.ndarray:
    """Return the number of tokens of every sentence of a binary text. Raise SideError for damaged files."""
    index, header = Path(f"{prefix}.idx"), b""
    if index.is_file():
        with index.open("rb") as file:
            header = file.read(_HEADER.size)
    try:
        if header.startswith(_MAGIC):
            _require_whole(index, Path(f"{prefix}.bin"), header)
        text = data_utils.load_indexed_dataset(str(prefix), None)
        return np.array(text.sizes)  # a copy, because the data set unmaps its file when it is deleted
    except PositionError:
        raise
    except Exception as error:  # fairseq raises errors of any kind for a damaged file
        reason = shorten(str(error) or type(error).__name__, 80)
        raise SideError("SIDE-FORMAT", str(index), f"damaged or truncated ({reason}). {_AGAIN}") from None


def _require_whole(index: Path, data: Path, header: bytes) -> None:
    """Raise an error if a text in the format mmap is truncated, empty or damaged, before fairseq maps it into memory."""
    require_regular(data)
    _, version, code, count = _HEADER.unpack(header)
    if version != 1 or code not in _TYPES:
        raise ValueError("the header is wrong")
    if index.stat().st_size != _HEADER.size + 12 * count:  # per row: 4 bytes for the size and 8 bytes for the offset
        raise ValueError(f"the length does not match {count:,} rows")
    sizes = np.fromfile(index, np.int32, count, offset=_HEADER.size).astype(np.int64)
    places = np.fromfile(index, np.int64, count, offset=_HEADER.size + 4 * count)
    width = np.dtype(_TYPES[code]).itemsize
    if (sizes < 0).any() or (places != (np.cumsum(sizes) - sizes) * width).any():
        raise ValueError("rows overlap or have gaps")
    found, wanted = data.stat().st_size, int(sizes.sum()) * width
    if found != wanted or not found:
        detail = f"{found:,} bytes, but {index.name} requires {wanted:,}. {_AGAIN}"
        raise SideError("SIDE-FORMAT", str(data), detail)

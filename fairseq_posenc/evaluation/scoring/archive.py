"""Store many score.json files in one small file, `runs.xz`: `posenc archive RUNS`.

The file is compressed by xz. First, it contains the records as JSON, one per line. Fields that are equal in all records are
stored once. After a null byte, it contains the statistics of every sentence. Significance tests and scores by length are computed
from these statistics. The archive is lossless: `find` returns the records of the original files.

Equation: each count of a sentence is predicted from other counts of this sentence, and the archive contains the errors e of the
    prediction: x_k = e_k + floor((b_k + sum_j x_j w_jk) / 2^12 + 1/2). j are the columns before k, and w and b are integers.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...common.files import require_regular, write_files
from ...core import PositionError
from . import record
from .lengths import Lengths
from .record import Record
from .sentences import SentenceStatistics, pack_json

FILE = "runs.xz"
_FORMAT = 3
# maximum size of the file and of the records in bytes, maximum number of counts (read and write use about 24 bytes of memory per
# count), and maximum memory of the LZMA decoder in bytes
_MOST_BYTES, _MOST_NUMBERS, _MEMORY = 2**28, 2**27, 2**29
_LARGEST = 2**31 - 1  # maximum count of a sentence
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]  # LZMA for unaligned data
_NAMES = ("statistics", "lengths")  # fields of PartScores with statistics of sentences

#: columns of SentenceStatistics in the order of the prediction. Each column is predicted from the columns before it. The first
#: columns are the reference length in words, and the numbers of character n-grams of the reference
_ORDER = (1, *range(11, 28, 3), 0, *range(10, 28, 3), *range(6, 10), *range(12, 28, 3), *range(2, 6))
_BITS = 12  # number of fractional bits of a weight


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Store the score.json files of many runs in one small file, the archive {FILE}. posenc report computes the "
        "same tables from the archive. If you call the command again, it adds new runs to the archive."
    )
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder of runs, searched for score.json files and archives")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=f"folder for {FILE} (default: the folder of runs)")
    parser.add_argument("--replace", action="store_true", help="replace an archived run if its folder contains a score.json")


def run(args: argparse.Namespace) -> None:
    folder = args.output or args.runs
    found = find(args.runs, args.replace)
    if folder != args.runs and args.runs.resolve() in folder.resolve().parents:  # not the runs of the archive
        found = {path: content for path, content in found.items() if folder.resolve() not in path.resolve().parents}
    if not found:
        raise PositionError(
            f"{args.runs}: no {record.FILE} in this folder. Expected a folder of scored runs. Run posenc score first."
        )
    named = {path.parent.relative_to(args.runs).as_posix(): content for path, content in found.items()}
    if folder != args.runs and (folder / FILE).is_file():
        named = _added(folder, named, args.replace)
    write(folder, dict(sorted(named.items())))
    print(f"{folder / FILE}: {len(named)} runs ({(folder / FILE).stat().st_size:,} bytes)")


def _added(folder: Path, records: dict[str, Record], replace: bool) -> dict[str, Record]:
    """Return the runs of the archive in `folder`, and the runs in `records`."""
    archived = read(folder)
    for name in archived.keys() & records.keys():
        if not record.same_content(archived[name], records[name]) and not replace:
            raise PositionError(
                f"{name} differs from the run {name} in {folder / FILE}. Expected one record per run. "
                f"Rename the folder {name}, or use --replace."
            )
    return {**archived, **records}


def find(folder: Path, replace: bool = False) -> dict[Path, Record]:
    """Return a mapping from the path of score.json to the record, for all runs below a folder, sorted by path.

    The path of an archived run is FOLDER/NAME/score.json. FOLDER is the folder of the archive, and NAME is the name of the run.

    Args:
        replace: whether a score.json takes precedence over an archived run with the same path.

    Raises:
        PositionError: A score.json differs from the archived run with the same path, and `replace` is not set.
    """
    found = {path: record.read(path) for path in _below(folder, record.FILE)}
    for path in _below(folder, FILE):
        for name, content in read(path.parent).items():
            place = path.parent / name / record.FILE
            if not record.same_content(found.setdefault(place, content), content) and not replace:
                raise PositionError(
                    f"{place} differs from the run {name} in {path}. Expected one record per run. Remove {place.name}, or run "
                    f"posenc archive {path.parent} --replace."
                )
    return dict(sorted(found.items()))


def _below(folder: Path, name: str) -> Iterator[Path]:
    """Yield the paths of all files with this name in a folder and its subfolders, and behind links to folders.

    A folder that has several paths is read once.
    """
    seen: set[str] = set()
    for place, subfolders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders.sort(key=lambda name: (os.path.islink(os.path.join(place, name)), name))  # first the paths without links
        if name in files:
            yield Path(place, name)


def write(folder: Path, records: dict[str, Record]) -> None:
    """Write an archive of these records: name of a run -> record. Raise PositionError if `read` would refuse the archive."""
    contents = {name: content.model_dump(mode="json", exclude_unset=True) for name, content in records.items()}
    blocks: dict[tuple[str, str | None, str], list[np.ndarray]] = {}
    total = 0
    for name, content in contents.items():
        for part, scores in content["parts"].items():
            for kind in _NAMES:
                if scores.get(kind) is not None:
                    key = (part, scores.get("reference"), kind)
                    numbers = _unpacked(kind, scores[kind], f"{name}, {part}")
                    total += numbers.size
                    _require_size(folder, total, _MOST_NUMBERS, "counts of sentences")
                    blocks.setdefault(key, []).append(numbers)
                    if (shape := blocks[key][0].shape) != numbers.shape:
                        raise PositionError(
                            f"{folder}: runs with {shape} and {numbers.shape} numbers for {part}. "
                            "Expected the same test set. "
                            "Store them in separate archives."
                        )
                    scores[kind] = ""  # the blocks contain these numbers, in the order of the runs
    stacked = {key: np.stack(blocks.pop(key)) for key in list(blocks)}  # [runs, columns, sentences]
    index = [[*key, *numbers.shape] for key, numbers in stacked.items()]
    shared = _shared(list(contents.values()))
    runs = ",\n".join(f" {_text(name)}: {_text(_without(content, shared))}" for name, content in contents.items())
    head = f'"format": {_FORMAT},\n"shared": {_text(shared, 1)},\n"sentences": {_text(index)}'
    text = f'{{{head},\n"runs": {{\n{runs}\n}}}}\n'.encode()  # JSON contains no null byte
    packed = lzma.compress(text + b"\0" + _encode(stacked), filters=_FILTERS)
    _require_size(folder, max(len(packed), len(text)), _MOST_BYTES, "bytes in one file")
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, {FILE: packed})


def _require_size(folder: Path, size: int, most: int, unit: str) -> None:
    if size > most:
        raise PositionError(
            f"{folder}: too many {unit} for one archive. Expected at most {most:,}. Store the runs in several archives."
        )


def read(folder: Path) -> dict[str, Record]:
    """Return the records of an archive: name of a run -> record. Raise PositionError if the file is damaged."""
    path = folder / FILE
    require_regular(path, _MOST_BYTES)
    try:
        unpacker = _Unpacker(path.read_bytes())
        found = json.loads(unpacker.until_null())
        if found["format"] != _FORMAT:
            raise ValueError(f"the format is {found['format']!r}")
        numbers = _decode(unpacker, found["sentences"])
        records = {}
        for name, own in found["runs"].items():
            content = _with(own, found["shared"])
            for part, scores in content["parts"].items():
                for kind in _NAMES:
                    if scores.get(kind) == "":
                        scores[kind] = _packed(kind, next(numbers[part, scores.get("reference"), kind]))
            records[name] = record.parse(json.dumps(content), f"{path} ({name})")
    except PositionError:
        raise
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        StopIteration,
        RecursionError,
        OverflowError,
        lzma.LZMAError,
    ) as error:
        raise PositionError(
            f"{path}: damaged archive ({type(error).__name__}: {error}). Expected the output of posenc archive."
        ) from None
    return records


def _text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, separators=(",", ":"), ensure_ascii=False)


def _unpacked(kind: str, packed: str, subject: str) -> np.ndarray:
    """Unpack a field of score.json to an array [columns, sentences]."""
    try:
        if kind == "lengths":
            lengths = Lengths.unpack(packed)
            numbers = np.array([lengths.asked, lengths.got])
        else:
            statistics = SentenceStatistics.unpack(packed)
            words = [] if statistics.source_words is None else [statistics.source_words]
            numbers = np.concatenate([np.array(statistics.bleu).T, np.array(statistics.chrf).T, *map(np.atleast_2d, words)])
        if not numbers.size:
            raise ValueError("no sentences")
        return numbers
    except Exception as error:  # unpacking damaged statistics can raise errors of many types
        raise PositionError(f"{subject}: the field {kind} is damaged ({error}). Run posenc score again.") from None


def _packed(kind: str, numbers: np.ndarray) -> str:
    """Pack an array [columns, sentences] to the text of a field of score.json."""
    if kind == "lengths":
        return Lengths(*numbers.tolist()).pack()
    words = numbers[28].tolist() if len(numbers) > 28 else None
    return pack_json({"bleu": numbers[:10].tolist(), "chrf": numbers[10:28].tolist(), "source_words": words})


def _encode(blocks: dict[tuple[str, str | None, str], np.ndarray]) -> bytes:
    """Return the weights as bytes, followed by the prediction errors of each block.

    A block contains the numbers of one kind (`statistics` or `lengths`) for one test set and one reference, for all runs. The
    kind `lengths` is stored without prediction. In a block, the lowest bytes of all numbers come first.
    """
    weights = _weights([numbers for (*_, kind), numbers in blocks.items() if kind == "statistics"])
    data = [weights.astype("<i4").tobytes()]
    for (*_, kind), numbers in blocks.items():
        errors = numbers.copy()
        if kind == "statistics":
            for place, column in enumerate(_ORDER):
                errors[:, column] -= _predicted(numbers, weights, place)
        signs = (errors << 1) ^ (errors >> 63)  # 0, -1, 1, -2, ... -> 0, 1, 2, 3, ...
        planes = signs.astype("<u4").transpose(1, 2, 0).copy().view(np.uint8).reshape(-1, 4)  # [columns * sentences * runs, 4]
        data.append(planes.T.tobytes())
    return b"".join(data)


class _Unpacker:
    """Unpack a file of xz in parts, so that a small file cannot fill the memory."""

    def __init__(self, packed: bytes):
        self._decoder, self._packed = lzma.LZMADecompressor(memlimit=_MEMORY), packed
        self._data = b""  # unpacked and not yet returned

    def _unpack(self, most: int) -> bool:
        """Unpack at most `most` bytes. Return whether more bytes may follow."""
        packed, self._packed = self._packed, b""
        data = b"" if self._decoder.eof else self._decoder.decompress(packed, most)
        self._data += data
        return bool(data)

    def until_null(self) -> bytes:
        """Return the bytes before the first null byte. Raise ValueError if there are too many."""
        while b"\0" not in self._data and len(self._data) <= _MOST_BYTES and self._unpack(2**20):
            pass
        before, null, self._data = self._data.partition(b"\0")
        if not null:
            raise ValueError("the records do not end")
        return before

    def rest(self, size: int) -> bytes:
        """Return all other bytes. Raise ValueError unless there are `size`."""
        while len(self._data) <= size and self._unpack(size + 1 - len(self._data)):
            pass
        if len(self._data) != size or not self._decoder.eof:
            raise ValueError("the number of sentence statistics differs from the records")
        return self._data


def _decode(unpacker: _Unpacker, index: list[Any]) -> dict[tuple[str, str | None, str], Iterator[np.ndarray]]:
    """Return a dictionary from (test set, reference, kind) to an iterator.

    The iterator yields one array [columns, sentences] per run, in the order of the runs.
    """
    sizes = [[int(size) for size in sizes] for *_, runs, columns, sentences in index for sizes in [(runs, columns, sentences)]]
    total = sum(runs * columns * sentences for runs, columns, sentences in sizes)
    if any(size < 1 for shape in sizes for size in shape) or total > _MOST_NUMBERS:
        raise ValueError(f"{total:,} sentence statistics, more than {_MOST_NUMBERS:,}")
    width = len(_ORDER)
    start = 4 * width * (width + 1)
    data = unpacker.rest(start + 4 * total)
    weights = np.frombuffer(data[:start], "<i4").reshape(width, width + 1).astype(np.int64)
    found = {}
    for (part, reference, kind, *_), (runs, columns, sentences) in zip(index, sizes):
        end = start + 4 * runs * columns * sentences
        planes = np.frombuffer(data[start:end], np.uint8).reshape(4, -1).T.copy()  # [columns * sentences * runs, 4]
        signs = planes.view("<u4").reshape(columns, sentences, runs).transpose(2, 0, 1).astype(np.int64)
        numbers = (signs >> 1) ^ -(signs & 1)
        for place, column in enumerate(_ORDER) if kind == "statistics" else ():
            numbers[:, column] += _predicted(numbers, weights, place)
            if numbers[:, column].min() < 0 or numbers[:, column].max() > _LARGEST:
                raise ValueError(f"the numbers of {part} are not counts")
        found[part, reference, kind] = iter(numbers)
        start = end
    return found


def _weights(blocks: list[np.ndarray]) -> np.ndarray:
    """Return the weights that predict the K columns of SentenceStatistics: [K, K + 1].

    Each column is predicted from the columns before this column in `_ORDER`.

    The weights are from a least-squares fit. They are integers in units of 2^-12. Row k contains the weights of the columns
    before column k, then zeros. The last number of the row is the constant.
    """
    width = len(_ORDER)
    moments = np.zeros((width + 1, width + 1))
    for numbers in blocks:
        columns = numbers[:, _ORDER].transpose(1, 0, 2).reshape(width, -1).astype(float)
        columns = np.concatenate([columns, np.ones_like(columns[:1])])
        moments += columns @ columns.T
    weights = np.zeros((width, width + 1))
    for place in range(width):
        known = [*range(place), width]
        weights[place, known] = np.linalg.lstsq(moments[np.ix_(known, known)], moments[known, place], rcond=None)[0]
    return np.rint(weights.clip(-(2**15), 2**15) * 2**_BITS).astype(np.int64)


def _predicted(numbers: np.ndarray, weights: np.ndarray, place: int) -> np.ndarray:
    """Predict a column [runs, sentences] from the columns before it, with integer arithmetic."""
    before = numbers[:, _ORDER[:place]]  # [runs, columns, sentences]
    total = np.einsum("rcs,c->rs", before, weights[place, :place]) + weights[place, -1]
    return (total + 2 ** (_BITS - 1)) >> _BITS


def _shared(contents: list[dict[str, Any]], ordered: bool = False) -> dict[str, Any]:
    """Return the fields that all records have, with null for values that differ. Return {} if the order of the fields differs.

    With `ordered`, return {} also if a field that not all records have is before a shared field. `_with` would change the order.
    """
    first, *others = contents
    names = [name for name in first if all(name in other for other in others)]
    moved = ordered and any(list(content)[: len(names)] != names for content in contents)
    if moved or any([name for name in other if name in names] != names for other in others):
        return {}
    found: dict[str, Any] = {}
    for name in names:
        values = [content[name] for content in contents]
        if all(isinstance(value, dict) for value in values):
            found[name] = _shared(values, ordered=name == "parts")  # reports have the order of the test sets
        else:
            # compare as text, because Python treats 1, 1.0 and True as equal
            found[name] = values[0] if len(set(map(_text, values))) == 1 else None
    return found


def _without(content: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that differ from the shared fields."""
    own = {}
    for name, value in content.items():
        if isinstance(shared.get(name), dict):
            if inner := _without(value, shared[name]):
                own[name] = inner
        elif name not in shared or _text(value) != _text(shared[name]):
            own[name] = value
    return own


def _with(own: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the complete record: the shared fields in their order, then the fields that only this record has."""
    common = {
        name: _with(own.get(name, {}), value) if isinstance(value, dict) else own.get(name, value)
        for name, value in shared.items()
    }
    return {**common, **{name: value for name, value in own.items() if name not in shared}}

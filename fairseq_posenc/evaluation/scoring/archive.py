"""Many score.json files in two small ones: `posenc archive RUNS --output FOLDER`.

`runs.json` contains the records. What all records agree in is stored once. `sentences.xz` contains the numbers of every sentence,
which significance tests and scores by length read. Nothing is lost: `find` returns the records of the original files.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...common.files import read_text, replace_file
from ...core import PositionError
from . import record
from .lengths import Lengths
from .record import Record
from .sentences import SentenceStatistics

RUNS, SENTENCES = "runs.json", "sentences.xz"
_FORMAT = 1
_MOST_BYTES, _MOST_NUMBERS, _MEMORY = 2**28, 2**26, 2**29  # of a file, of unpacked numbers, of the decoder
#: column -> the column that counts one token fewer: a sentence has one bigram less than it has words, and so on
_SHORTER = {7: 6, 8: 7, 9: 8} | {10 + 3 * n + side: 7 + 3 * n + side for n in range(1, 6) for side in (0, 1)}
_SAME = {6: 0}  # the unigrams of a hypothesis are its words
_NAMES = ("statistics", "lengths")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Store the score.json files of many runs in two small files. posenc report computes the same tables from them."
    )
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder of runs, searched for score.json files")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help=f"folder for {RUNS} and {SENTENCES}")


def run(args: argparse.Namespace) -> None:
    found = find(args.runs)
    if not found:
        raise PositionError(
            f"{args.runs}: no {record.FILE} in this folder. Expected a folder of scored runs. Run posenc score first"
        )
    write(args.output, {path.parent.relative_to(args.runs).as_posix(): content for path, content in found.items()})
    sizes = ", ".join(f"{name} {(args.output / name).stat().st_size:,} bytes" for name in (RUNS, SENTENCES))
    print(f"{args.output}: {len(found)} runs ({sizes})")


def find(folder: Path) -> dict[Path, Record]:
    """All records below a folder by the path of their score.json, which an archive need not have on disk, in order of path."""
    found = {path: record.read(path) for path in folder.rglob(record.FILE)}
    for path in folder.rglob(RUNS):
        for name, content in read(path.parent).items():
            place = path.parent / name / record.FILE
            if found.setdefault(place, content) != content:
                raise PositionError(
                    f"{place} differs from the run {name} in {path}. Expected one of the two. Remove the older one"
                )
    return dict(sorted(found.items()))


def write(folder: Path, records: dict[str, Record]) -> None:
    """Write an archive of records by name."""
    contents = {name: content.model_dump(mode="json", exclude_unset=True) for name, content in records.items()}
    blocks: dict[tuple[str, str | None, str], list[np.ndarray]] = {}
    for content in contents.values():
        for part, scores in content["parts"].items():
            for kind in _NAMES:
                if scores.get(kind) is not None:
                    key = (part, scores.get("reference"), kind)
                    numbers = _columns(kind, scores[kind])
                    shape = blocks.setdefault(key, [numbers])[0].shape
                    if blocks[key][0] is not numbers:
                        if shape != numbers.shape:
                            raise PositionError(
                                f"{folder}: runs with {shape} and {numbers.shape} numbers for {part}; archive them apart"
                            )
                        blocks[key].append(numbers)
                    scores[kind] = ""  # in the other file, in this order
    settings = _shared([content["settings"] for content in contents.values() if "settings" in content])
    decoding = _shared([s["decoding"] for content in contents.values() for s in content["parts"].values() if "decoding" in s])
    for content in contents.values():
        _remove(content, "settings", settings)
        for scores in content["parts"].values():
            _remove(scores, "decoding", decoding)
    index = [[*key, len(rows), *rows[0].shape] for key, rows in blocks.items()]
    text = json.dumps(
        {"format": _FORMAT, "settings": settings, "decoding": decoding, "sentences": index, "runs": contents},
        indent=1, ensure_ascii=False,
    )  # fmt: skip
    packed = lzma.compress(
        b"".join(_bytes(kind, np.stack(rows)) for (_, _, kind), rows in blocks.items()), preset=9 | lzma.PRESET_EXTREME
    )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / SENTENCES, lambda partial: partial.write_bytes(packed))
    replace_file(folder / RUNS, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))


def read(folder: Path) -> dict[str, Record]:
    """The records of an archive by name; raises PositionError where a file is damaged."""
    path = folder / RUNS
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        found = json.loads(read_text(path))
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        numbers = _numbers(folder / SENTENCES, found["sentences"])
        records = {}
        for name, content in found["runs"].items():
            if "settings" in content:
                content["settings"] = {**found["settings"], **content["settings"]}
            for part, scores in content["parts"].items():
                if "decoding" in scores:
                    scores["decoding"] = {**found["decoding"], **scores["decoding"]}
                for kind in _NAMES:
                    if scores.get(kind) == "":
                        scores[kind] = _packed(kind, next(numbers[part, scores.get("reference"), kind]))
            records[name] = record.parse(json.dumps(content), f"{path} ({name})")
    except PositionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError, lzma.LZMAError) as error:
        raise PositionError(
            f"{path}: damaged archive ({type(error).__name__}: {error}). Expected the output of posenc archive"
        ) from None
    return records


def _columns(kind: str, packed: str) -> np.ndarray:
    """[columns, sentences]"""
    if kind == "lengths":
        lengths = Lengths.unpack(packed)
        return np.array([lengths.asked, lengths.got])
    statistics = SentenceStatistics.unpack(packed)
    words = [] if statistics.source_words is None else [statistics.source_words]
    return np.concatenate([np.array(statistics.bleu).T, np.array(statistics.chrf).T, *map(np.atleast_2d, words)])


def _packed(kind: str, numbers: np.ndarray) -> str:
    """The text that score.json has for [columns, sentences]."""
    if kind == "lengths":
        return Lengths(*numbers.tolist()).pack()
    words = numbers[28].tolist() if len(numbers) > 28 else None
    return SentenceStatistics(numbers[:10].T.tolist(), numbers[10:28].T.tolist(), words).pack()


def _bytes(kind: str, numbers: np.ndarray) -> bytes:
    """[runs, columns, sentences] -> bytes that compress well: small differences, sentence by sentence, low bytes first."""
    numbers = numbers.copy()
    if kind == "statistics":
        for column, other in reversed(_predictions()):
            numbers[:, column] -= other(numbers)
    planes = numbers.astype("<i4").transpose(1, 2, 0).copy().view(np.uint8).reshape(-1, 4)  # [columns * sentences * runs, 4]
    return planes.T.tobytes()


def _numbers(path: Path, index: list[Any]) -> dict[tuple[str, str | None, str], Iterator[np.ndarray]]:
    """[columns, sentences] of every run, in the order of the runs, by test set, reference and kind."""
    sizes = [[int(size) for size in sizes] for *_, runs, columns, sentences in index for sizes in [(runs, columns, sentences)]]
    total = sum(runs * columns * sentences for runs, columns, sentences in sizes)
    if any(size < 1 for shape in sizes for size in shape) or total > _MOST_NUMBERS:
        raise ValueError(f"{total:,} numbers of sentences; at most {_MOST_NUMBERS:,} are possible")
    decoder = lzma.LZMADecompressor(memlimit=_MEMORY)
    data = decoder.decompress(path.read_bytes() if path.stat().st_size < _MOST_BYTES else b"", 4 * total + 1)
    if len(data) != 4 * total or not decoder.eof:
        raise ValueError(f"{path.name} does not belong to it")
    found, start = {}, 0
    for (part, reference, kind, *_), (runs, columns, sentences) in zip(index, sizes):
        end = start + 4 * runs * columns * sentences
        planes = np.frombuffer(data[start:end], np.uint8).reshape(4, -1).T.copy()  # [columns * sentences * runs, 4]
        numbers = planes.view("<i4").reshape(columns, sentences, runs).transpose(2, 0, 1).astype(np.int64)
        if kind == "statistics":
            for column, other in _predictions():
                numbers[:, column] += other(numbers)
        found[part, reference, kind] = iter(numbers)
        start = end
    return found


def _predictions() -> list[tuple[int, Any]]:
    """(column, prediction by columns before it) of SentenceStatistics; a prediction maps [runs, columns, sentences] to
    [runs, sentences]."""
    rules = [(0, lambda x: x[:, 1])]  # a hypothesis is about as long as its reference
    rules += [(column, lambda x, other=other: x[:, other]) for column, other in _SAME.items()]
    rules += [(column, lambda x, other=other: np.maximum(x[:, other] - 1, 0)) for column, other in _SHORTER.items()]
    rules += [(2 + n, lambda x, n=n: np.minimum(x[:, 6 + n], np.maximum(x[:, 1] - n, 0))) for n in range(4)]  # most n-grams match
    rules += [(12 + 3 * n, lambda x, n=n: np.minimum(x[:, 10 + 3 * n], x[:, 11 + 3 * n])) for n in range(6)]
    return rules


def _shared(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """What all have, with the same value."""
    first, *others = settings or [{}]
    return {name: value for name, value in first.items() if all(name in other and _same(other[name], value) for other in others)}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)  # 1 is not 1.0 or true


def _remove(content: dict[str, Any], name: str, shared: dict[str, Any]) -> None:
    if name in content:
        content[name] = {key: value for key, value in content[name].items() if key not in shared}

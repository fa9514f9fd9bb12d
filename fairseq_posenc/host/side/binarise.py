"""Convert the side files of a text to indexed files next to the binary text of fairseq-preprocess.

The names of the indexed files are DATA/SPLIT.SOURCE-TARGET.SOURCE plus .heads, .relations, .edges, .order or .words. Their format
is fairseq's "mmap". A sentence has n words and S tokens. The last word and the last token are `</s>`, whose head is the root. The
files contain one row per sentence:

    heads [n]      index of the head of each word, counted from 1. 0 for the root
    relations [n]  index of the relation label in DATA/dict.relations.txt
    edges [3 m]    three numbers for each of m edges: index of the start word, index of the end word, index of the label. Word
                   indices are counted from 1. If the end word is a root, the index of the start word is 0
    order [n]      original word index at each position of the reordered sentence, counted from 0
    words [S]      word index of each token, counted from 0. A word has no token if SentencePiece deletes all its characters
"""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary, indexed_dataset
from tqdm import tqdm

from ...common.files import read_text, require_regular
from ...common.messages import join, shorten
from ...core import END_RELATION, PositionError
from ...data.side import files
from ...data.side.files import KINDS, RESERVED, WORDS, Fault, SideError, side_file
from ...data.side.outputs import Outputs, chunks, in_order
from ...data.side.words import SUBWORDS
from ...data.text import Lines
from . import checksums
from .checksums import RELATIONS, load_relations, text_sizes

#: suffix of the file TEXT.order.source, which names the origin of the reorderings of TEXT
SOURCE = "source"
#: file in the data folder. This file names the origin of the reorderings of all splits
ORDER_SOURCE = "order.source.txt"
#: kinds of side files that contain relation labels
LABELLED = ("relations", "edges")


@dataclass(frozen=True)
class Part:
    """One text, and the paths of its files."""

    split: str
    text: Path  # text in words
    subwords: Path
    data: Path  # prefix of the paths of the indexed files

    def missing(self, kinds: Sequence[str]) -> Path | None:
        """Return the first file that does not exist, or None."""
        paths = [self.text, self.subwords, *(side_file(self.text, kind) for kind in kinds)]
        return next((path for path in paths if not path.is_file()), None)


@dataclass(frozen=True)
class Settings:
    kinds: tuple[str, ...]
    numbers: Mapping[str, int]  # relation label -> index
    subwords: str = "none"
    roots: str = "error"


def text_prefix(folder: Path, split: str, source: str, target: str) -> Path:
    """Return the path prefix of the source side of a binary text: FOLDER/SPLIT.PAIR.SOURCE.

    PAIR is SOURCE-TARGET. PAIR is TARGET-SOURCE if the data was prepared for the reverse direction. fairseq reads both.
    """
    paths = [folder / f"{split}.{pair}.{source}" for pair in (f"{source}-{target}", f"{target}-{source}")]
    return next((path for path in paths if indexed_dataset.dataset_exists(str(path), None)), paths[0])


def binarise(
    parts: Sequence[Part],
    folder: Path,
    subwords: str = "none",
    roots: str = "error",
    relations: Path | None = None,
    min_count: int | None = None,
    workers: int = 1,
) -> None:
    """Convert the side files of all parts. If any line of any side file is wrong, no file is written."""
    kinds = _kinds(parts)
    dictionary = _dictionary(parts, kinds, folder, relations, min_count)
    source = _order_source(parts, folder) if "order" in kinds else None
    settings = Settings(kinds, dictionary.indices if dictionary else {}, subwords, roots)
    with Outputs() as outputs:
        for part in parts:
            made = _binarise(part, settings, outputs, workers)
            used = dictionary if set(kinds) & set(LABELLED) else None
            outputs.partial(checksums.file_of(part.data)).write_text(checksums.describe(part.data, made, used), encoding="utf-8")
        if dictionary:
            dictionary.save(str(outputs.partial(folder / RELATIONS)))
        if source is not None:
            outputs.partial(folder / ORDER_SOURCE).write_text(source + "\n", encoding="utf-8")


def _kinds(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the kinds of side files that exist. All parts must have the same kinds."""
    kinds = tuple(kind for kind in KINDS if any(os.path.lexists(side_file(part.text, kind)) for part in parts))
    for part in parts:
        if not kinds:
            wanted = " or ".join(f".{kind}" for kind in KINDS)
            raise SideError(
                "SIDE-MISSING",
                str(part.text),
                f"no side files. Expected files with the same name and {wanted} at the end. Create them with posenc side trees.",
            )
        for kind in kinds:
            if os.path.lexists(side_file(part.text, kind)):
                require_regular(side_file(part.text, kind))
        missing = part.missing(kinds)
        if missing:
            raise SideError(
                "SIDE-MISSING", str(missing), "no such file. Create it, or remove this kind of side file from all splits."
            )
        if not indexed_dataset.dataset_exists(str(part.data), None):
            raise SideError(
                "SIDE-MISSING", f"{part.data}.idx", "no such file. Expected the binary text. Run fairseq-preprocess first."
            )
    return kinds


def _dictionary(
    parts: Sequence[Part], kinds: Sequence[str], folder: Path, given: Path | None, min_count: int | None
) -> Dictionary | None:
    """Return the dictionary of relation labels, or None if no side file contains labels.

    If `given` is set, the labels are read from this file. Otherwise, the labels are collected from the training data.
    If the data contains no training split, the labels are read from DATA/dict.relations.txt.
    Raise PositionError for `min_count` if no labels are collected.
    """
    labelled = [kind for kind in LABELLED if kind in kinds]
    train = [part for part in parts if part.split.startswith("train")]
    old = folder / RELATIONS
    path = given or (old if not train else None)
    if min_count is not None and (path is not None or not labelled):
        reason = f"the labels are read from {path}" if labelled else "the side files contain no labels"
        raise PositionError(f"--min-count {min_count}: no effect, because {reason}. Remove --min-count.")
    if not labelled:
        return None
    if path is None:
        dictionary = Dictionary()
        for label, count in sorted(_once(_labels(train, kind) for kind in labelled).items()):
            dictionary.add_symbol(label, count)
        dictionary.finalize(threshold=min_count or 1, padding_factor=1)
    elif path.is_file():
        dictionary = load_relations(path)
    else:
        raise SideError(
            "SIDE-MISSING",
            str(path),
            "no such file. Expected the relations of the training data. Add --trainpref or --relations.",
        )
    if old.is_file() and load_relations(old).symbols != dictionary.symbols:
        names = {f"{part.data.name}.{kind}.idx" for part in parts for kind in labelled}
        others = sorted(path.name for kind in labelled for path in folder.glob(f"*.{kind}.idx") if path.name not in names)
        if others:
            raise PositionError(
                f"{folder / others[0]}: the file was created with the earlier relations of {old}. "
                "Expected the same relations for all "
                "splits. Run posenc side binarise with all splits in one command."
            )
    return dictionary


def _labels(parts: Sequence[Part], kind: str) -> collections.Counter:
    """Return the count of each label in the side files of one kind."""
    found: collections.Counter = collections.Counter()
    for part in parts:
        with Lines(side_file(part.text, kind)) as lines:
            for line in lines:
                found.update(line.split() if kind == "relations" else (edge.partition(":")[2] for edge in line.split()))
    for label in ("", *RESERVED):  # edges without a label have the label "". Forbidden labels raise an error later
        found.pop(label, None)
    return found


def _once(counts: Iterable[collections.Counter]) -> collections.Counter:
    """Return the largest count of each label. A label of the tree is usually also the label of an edge, and counts once."""
    return functools.reduce(operator.or_, counts, collections.Counter())


def _order_source(parts: Sequence[Part], folder: Path) -> str:
    """Return the origin of the reorderings, which must be the same for all splits."""
    paths = [side_file(side_file(part.text, "order"), SOURCE) for part in parts]
    if (folder / ORDER_SOURCE).is_file():
        paths.append(folder / ORDER_SOURCE)
    sources = {}
    for path in paths:
        if not path.is_file():
            raise SideError(
                "SIDE-MISSING",
                str(path),
                "no such file. Expected the source of the reorderings. Create both with posenc side order.",
            )
        sources.setdefault(read_text(path, largest=2**16).strip(), path)
    if len(sources) > 1:
        listed = " and ".join(f"{shorten(source)!r} in {path}" for source, path in sources.items())
        raise PositionError(
            f"the splits have reorderings from different sources: {listed}. Expected one source. "
            "Run posenc side order for all splits "
            "with the same source."
        )
    return next(iter(sources))


def _binarise(part: Part, settings: Settings, outputs: Outputs, workers: int) -> dict[str, list[Path]]:
    """Write the indexed files of a part to temporary paths. Return these paths by kind."""
    sizes = text_sizes(part.data)
    dtype = indexed_dataset.best_fitting_int_dtype(max([int(sizes.max(initial=0)), *settings.numbers.values()]) + 1)
    paths = {kind: (Path(f"{part.data}.{kind}.bin"), Path(f"{part.data}.{kind}.idx")) for kind in (*settings.kinds, WORDS)}
    lengths: dict[str, list[np.ndarray]] = {kind: [np.zeros(0, int)] for kind in paths}
    unknown: _Unknown = collections.defaultdict(collections.Counter)
    done = 0
    with contextlib.ExitStack() as stack:
        opened = {kind: stack.enter_context(outputs.partial(path).open("wb")) for kind, (path, _) in paths.items()}
        progress = stack.enter_context(tqdm(desc=str(part.text), unit=" sentences", total=len(sizes), disable=None))
        tasks = ((part, settings, chunk) for chunk in chunks(_sentences(part, settings.kinds, len(sizes))))
        for made, missing in in_order(_encode, tasks, workers):
            count = len(made[WORDS][0])
            _require_sizes(made[WORDS][0], sizes[done : done + count], part, done)
            for kind, (rows, numbers) in made.items():
                lengths[kind].append(rows)
                numbers.astype(dtype).tofile(opened[kind])
            for kind, labels in missing.items():
                unknown[kind].update(labels)
            done += count
            progress.update(count)
    for kind, (_, path) in paths.items():
        with indexed_dataset.MMapIndexedDataset.Index.writer(str(outputs.partial(path)), dtype) as index:
            index.write(np.concatenate(lengths[kind]).tolist())
    print(f"{part.split}: {done} sentences with {', '.join(settings.kinds)}", flush=True)
    labels = _once(unknown.values())
    if labels:
        named = join([f"{label!r}" for label, _ in labels.most_common()])
        count = sum(labels.values())
        print(f"{part.split}: {count} relations are not in {RELATIONS} and count as unknown: {named}", flush=True)
    return {kind: [outputs.partial(path) for path in pair] for kind, pair in paths.items()}


def _require_sizes(given: np.ndarray, wanted: np.ndarray, part: Part, done: int) -> None:
    wrong = np.flatnonzero(given != wanted)
    if len(wrong):
        place = wrong[0]
        detail = f"{given[place] - 1} subwords, but {part.data} has {wanted[place] - 1}. Expected the text of fairseq-preprocess."
        raise SideError("SIDE-MAP", f"{part.subwords}, line {done + place + 1}", detail)


def _sentences(part: Part, kinds: Sequence[str], count: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number, from 1, and the line of every file. Raise SideError if the files differ in their number of lines."""
    paths = {"text": part.text, "subwords": part.subwords, **{kind: side_file(part.text, kind) for kind in kinds}}
    if side_file(part.subwords, WORDS).is_file():
        paths[WORDS] = side_file(part.subwords, WORDS)
    with contextlib.ExitStack() as stack:
        opened = {name: stack.enter_context(Lines(path)) for name, path in paths.items()}
        for number, lines in enumerate(zip_longest(*opened.values()), 1):
            if None in lines or number > count:
                break
            yield number, dict(zip(opened, lines))
        else:
            if number_of_lines(part.text) == count:
                return
        for path in paths.values():
            found = number_of_lines(path)
            if found != count:
                raise SideError(
                    "SIDE-LINES",
                    str(path),
                    f"{found} lines, but {part.data} has {count} sentences. Expected one line per sentence.",
                )


def number_of_lines(path: Path) -> int:
    with Lines(path) as lines:
        return sum(1 for _ in lines)


#: kind -> (lengths of its rows, all rows concatenated)
_Rows = dict[str, tuple[np.ndarray, np.ndarray]]


#: kind -> counts of the relation labels that are not in the dictionary
_Unknown = dict[str, collections.Counter]


def _encode(task: tuple[Part, Settings, list]) -> tuple[_Rows, _Unknown]:
    """Return the rows of some sentences for each kind of indexed file.

    Also return the count of each relation label that is not in the dictionary.
    """
    part, settings, sentences = task
    made: dict[str, list[list[int]]] = {kind: [] for kind in (*settings.kinds, WORDS)}
    unknown: _Unknown = collections.defaultdict(collections.Counter)
    for number, lines in sentences:
        text, subwords = lines["text"].split(), lines["subwords"].split()
        words = len(text)
        path = part.subwords
        try:
            if WORDS in lines:
                path = side_file(part.subwords, WORDS)
                of_tokens = files.parse_words(lines[WORDS], len(subwords), words)
            else:
                of_tokens = SUBWORDS[settings.subwords](subwords, text)
            made[WORDS].append([*(word - 1 for word in of_tokens), words])
            root = None
            for kind in settings.kinds:
                path = side_file(part.text, kind)
                row, root = _row(settings, unknown[kind], kind, lines[kind], words, root)
                made[kind].append(row)
        except Fault as fault:
            raise fault.at(path, number) from None
    return {kind: (np.array([*map(len, rows)]), np.array([*chain(*rows)])) for kind, rows in made.items()}, unknown


def _row(
    settings: Settings, unknown: collections.Counter, kind: str, line: str, words: int, root: int | None
) -> tuple[list[int], int | None]:
    """Return the row of one line of one kind of side file, and the root.

    `root` is the word index of the root, counted from 1. `root` is None if the heads of the sentence have not been read.
    """
    if kind == "heads":
        heads = files.parse_heads(line, words, settings.roots)
        root = heads.index(0) + 1 if words else 0
        return [*heads, root], root
    if kind == "order":
        return [*files.parse_order(line, words), words], root
    if kind == "relations":
        return [*_indices(files.parse_relations(line, words), settings, unknown), END_RELATION], root
    edges = files.parse_edges(line, words)
    indices = _indices([label for _, _, label in edges], settings, unknown)
    end = (_root(edges, words) if root is None else root, words + 1, END_RELATION)
    return [*chain(*((*edge[:2], index) for edge, index in zip(edges, indices)), end)], root


def _indices(labels: Sequence[str], settings: Settings, unknown: collections.Counter) -> list[int]:
    """Return the indices of relation labels. Labels that are not in the dictionary are counted in `unknown`."""
    unknown.update(label for label in labels if label not in settings.numbers)
    return [settings.numbers.get(label, settings.numbers["<unk>"]) for label in labels]


def _root(edges: Sequence[tuple[int, int, str]], words: int) -> int:
    """Return the head of `</s>` in a graph.

    The head is the end of the first edge that starts at 0, because such an edge marks a root. If there is no such edge, the
    head is the first word without incoming edges. If all words have incoming edges, the head is word 1.
    """
    marked = [end for start, end, _ in edges if start == 0]
    entered = {end for _, end, _ in edges}
    free = [word for word in range(1, words + 1) if word not in entered]
    return next(iter([*marked, *free, min(words, 1)]))

"""Load binary side files of a data set, and compute the side inputs of methods from them."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import ConcatDataset, Dictionary, indexed_dataset
from torch import Tensor

from ...common.files import read_text
from ...core import PositionError, PositionMethod, Refusal, Sentence
from ...core.errors import require_option
from ...data.side.files import WORDS, SideError
from ...registry import method_class
from ...registry.declarations import name_files, named_files
from .binarise import LABELLED, ORDER_SOURCE, text_prefix
from .checksums import RELATIONS, digest_of_relations, digests_of_files, file_of, load_relations, require_unchanged

logger = logging.getLogger(__name__)

#: facts about the side files of a training run. A checkpoint contains them among the options of the model
FACTS = ("relations", "relations_digest", "order_source", "random_structure", "side_files")


@dataclasses.dataclass(frozen=True)
class Reader:
    """The class and the options of a method that reads side files.

    Data loader processes receive a Reader instead of the torch module of the method.
    """

    method: type[PositionMethod]
    options: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name and the options of the method, and the value of POSENC_METHODS, but not the class.

        pickle would import the class by the name of its module. This fails for the user's methods, which are in the files of
        POSENC_METHODS. Another process therefore finds the class in the registry by the name of the method.
        """
        options = {field.name: getattr(self.options, field.name) for field in dataclasses.fields(self.options)}
        return _reader, (self.name, options, named_files())

    @property
    def files(self) -> set[str]:
        return self.method.card.side_files(self.options)

    @property
    def name(self) -> str:
        return self.method.card.name


def _reader(name: str, options: dict[str, Any], files: str | None) -> Reader:
    name_files(files)
    method = method_class(name)
    return Reader(method, method.Options(**options))


def readers(methods: Iterable[PositionMethod], before: Sequence[Reader] = ()) -> list[Reader]:
    """Return the readers `before`, followed by one reader for each other method that reads side files.

    Methods that differ only in the option `layers` share a reader.
    Raise PositionError if two methods compute the same side input differently.
    """
    found = list(before)
    makers = {side.name: reader for reader in found for side in reader.method.card.side_inputs}
    for method in methods:
        reader = Reader(type(method), dataclasses.replace(method.options, layers=None))
        if not reader.files or reader in found:
            continue
        for side in method.card.side_inputs:
            other = makers.setdefault(side.name, reader)
            if other != reader:
                raise PositionError(
                    f"{other.name}+{reader.name}: both methods create the side input {side.name!r}, with different options. "
                    "Use the same options for both."
                )
        found.append(reader)
    return found


class SideFiles:
    """The sentences of one data set, by index. Raise SideError if files are missing, or changed after posenc side binarise.

    `prefix` is DATA/SPLIT.SOURCE-TARGET.SOURCE. The text is `prefix`.idx, and a side file is `prefix`.KIND.idx.
    """

    def __init__(self, prefix: Path, kinds: Iterable[str]):
        kinds = tuple(kinds)
        paths = {kind: f"{prefix}.{kind}" for kind in (*kinds, WORDS)}
        for path in paths.values():
            if not indexed_dataset.dataset_exists(path, "mmap"):
                raise SideError(
                    "SIDE-MISSING",
                    f"{path}.idx",
                    "no such file. The model reads this side file. Create it with posenc side binarise.",
                )
        require_unchanged(prefix, kinds, LABELLED)
        self._rows = {kind: indexed_dataset.make_dataset(path, "mmap") for kind, path in paths.items()}

    def __len__(self) -> int:
        return len(self._rows[WORDS])

    def __getitem__(self, number: int) -> Sentence:
        rows = {kind: rows[number].numpy() for kind, rows in self._rows.items()}
        edges = rows.get("edges")
        if edges is not None:
            edges = edges.reshape(-1, 3)
            edges = edges[edges[:, 0] > 0] - np.array([1, 1, 0])
        heads = rows["heads"] - 1 if "heads" in rows else None
        return Sentence(rows[WORDS], heads, rows.get("relations"), edges, rows.get("order"))


class Shuffled:
    """Assign the nodes of each tree or graph, and the indices of each order, to random words of the sentence.

    This is a control experiment for the effect of the structure. The result depends only on `seed` and the index of the sentence.
    """

    def __init__(self, sentences: Any, seed: int):
        self.sentences, self.seed = sentences, seed

    def __getitem__(self, number: int) -> Sentence:
        sentence = self.sentences[number]
        words = int(sentence.words[-1])  # without </s>
        draw = np.random.default_rng((self.seed, number))
        return shuffled(sentence, np.append(draw.permutation(words), words))


def shuffled(sentence: Sentence, moved: np.ndarray) -> Sentence:
    """Move the structure of a sentence to other words: word moved[i] gets the node of word i. Return the new sentence."""
    new: dict[str, np.ndarray | None] = {}
    if sentence.heads is not None:
        heads = np.empty_like(sentence.heads)
        heads[moved] = np.where(sentence.heads < 0, -1, moved[sentence.heads])
        new["heads"] = heads
    if sentence.relations is not None:
        new["relations"] = np.empty_like(sentence.relations)
        new["relations"][moved] = sentence.relations
    if sentence.edges is not None:
        new["edges"] = np.column_stack([moved[sentence.edges[:, 0]], moved[sentence.edges[:, 1]], sentence.edges[:, 2]])
    if sentence.order is not None:
        new["order"] = moved[sentence.order]
    return dataclasses.replace(sentence, **new)


def split_names(folder: Path, split: str, languages: tuple[str, str], combine: bool) -> list[Path]:
    """Return the path prefixes of a split, as in fairseq.

    The split train has the prefix train. With `combine`, it can have more prefixes: train1, train2 and so on.
    """
    numbers = itertools.islice(itertools.count(), None if combine else 1)
    prefixes = (text_prefix(folder, f"{split}{number or ''}", *languages) for number in numbers)
    return list(itertools.takewhile(lambda prefix: indexed_dataset.dataset_exists(str(prefix), None), prefixes))


def sentences_of(prefixes: Sequence[Path], kinds: Iterable[str], upsample_primary: int) -> ConcatDataset:
    """Return the sentences of all parts of a split, in fairseq's order. fairseq repeats the first of several parts."""
    parts = [SideFiles(prefix, sorted(kinds)) for prefix in prefixes]
    return ConcatDataset(parts, [upsample_primary if len(parts) > 1 else 1] + [1] * (len(parts) - 1))


@dataclasses.dataclass(frozen=True)
class FromFiles:
    """Compute the side inputs of a sentence in a data loader process."""

    sentences: Any
    readers: Sequence[Reader]

    def __call__(self, number: int, pair: Mapping[str, Any]) -> dict[str, Tensor]:
        sentence = self.sentences[number]
        made: dict[str, Tensor] = {}
        for reader in self.readers:
            values = reader.method.side_values(sentence, reader.options)
            made.update((name, torch.from_numpy(np.array(value))) for name, value in values.items())
        return made


#: value of a fact that a checkpoint lacks
_UNKNOWN = object()


def _structure(seed: int | None) -> str:
    return "the real structure" if seed is None else f"--random-structure {seed}"


class FileInputs:
    """The side files of a task: the kinds that the models read, and the data folders.

    If `random_structure` is given, it is the seed of the control experiment `Shuffled`. Raise Refusal for a negative seed.
    """

    def __init__(
        self,
        folders: Sequence[str],
        languages: tuple[str, str],
        random_structure: int | None = None,
        train_subset: str = "train",
    ):
        least = random_structure is None or random_structure >= 0
        require_option(least, "random_structure", random_structure, "a seed of at least 0")
        self.folders, self.languages, self.random_structure = [Path(folder) for folder in folders], languages, random_structure
        self.train_subset = train_subset
        self.readers: list[Reader] = []
        self._told = False

    @property
    def kinds(self) -> set[str]:
        return {kind for reader in self.readers for kind in reader.files}

    def build(self, make: Callable[[Any], Any], args: Any) -> Any:
        """Return make(args). For a new model, store facts about the side files in `args`.

        The facts are the number and the hash of the relation labels, the origin of the reorderings, and the hashes of the
        training text and of its side files.

        Raise PositionError if a checkpoint was trained with other relation labels, with reorderings of another origin, or with
        another value of --random-structure. All data folders must have the same labels and the same origin.
        """
        relations, trained = len(self._dictionary(self.folders[0]) or ()), getattr(args, "relations", None)
        random, given = self.random_structure, getattr(args, "random_structure", None)
        if trained is None:
            args.relations = relations
        model = make(args)
        methods = getattr(model, "position_methods", [])  # models of stock fairseq have no methods
        kinds = {kind for reader in readers(methods) for kind in reader.files}
        labelled = not kinds.isdisjoint(LABELLED)
        if labelled and trained not in (None, relations):
            raise PositionError(
                f"{self.folders[0] / RELATIONS}: {relations} relations. Expected {trained}, as in the training of the model. "
                "Binarise the data with the file of the training: posenc side binarise --relations FILE."
            )
        if kinds and trained is None:
            args.side_files = self._digests(kinds)
        if labelled:
            self._require_labels(args)
        if "order" in kinds:
            self._require_source(args)
        if kinds and given != random:
            raise PositionError(
                f"--random-structure: this command uses {_structure(random)}, but the model was trained with "
                f"{_structure(given)}. Use the same option."
            )
        self.readers = readers(methods, self.readers)
        return model

    def require_same(self, path: str, trained: Any, args: Any) -> None:
        """Raise PositionError if a training run loads a checkpoint that was trained with other side files.

        `trained` contains the options of the checkpoint, and `args` the options of the training run, after `build`. The facts
        that the models of the training run depend on must be equal. A fact that the checkpoint lacks is not compared:
        checkpoints of earlier versions lack facts, and `posenc checkpoint start-from` removes them.
        """
        for fact in FACTS:
            old, new = (getattr(options, fact, _UNKNOWN) for options in (trained, args))
            if old == new or _UNKNOWN in (old, new) or not self._depend_on(fact):
                continue
            if fact == "side_files":
                old, new = old or {}, new or {}
                kinds = [kind for kind in sorted(self.kinds & old.keys() & new.keys()) if old[kind] != new[kind]]
                if not kinds or old["text"] != new["text"]:  # another text has other side files
                    continue
                what, same = f"other side files of the same text ({', '.join(kinds)})", "the same side files"
            elif fact == "order_source":
                what, same = f"reorderings from {old!r}, but the data has reorderings from {new!r}", "the same source"
            elif fact == "random_structure":
                what, same = f"{_structure(old)}, but this command uses {_structure(new)}", "the same structure"
            else:
                what = f"other relation labels than the labels of {self.folders[0] / RELATIONS}"
                same = "the same labels (posenc side binarise --relations FILE)"
            raise PositionError(
                f"{path}: trained with {what}. Expected {same}. To start anew from the other parameters, use posenc checkpoint "
                "start-from and another --save-dir."
            )

    def require_effect(self) -> None:
        """Raise Refusal for --random-structure if no model reads side files."""
        if self.random_structure is not None and not self.readers:
            option = f"--random-structure {self.random_structure}"
            raise Refusal(f"{option}: no effect, because the model reads no side files. Remove --random-structure.")

    def _depend_on(self, fact: str) -> bool:
        """Return whether the models of the task depend on a fact of `FACTS`."""
        if fact in ("random_structure", "side_files"):
            return bool(self.readers)
        return "order" in self.kinds if fact == "order_source" else not self.kinds.isdisjoint(LABELLED)

    def _require_labels(self, args: Any) -> None:
        """Raise PositionError if the relation labels of a data folder differ from the relation labels of the training run.

        The order of the labels must also be equal, because a label is stored as its index. Checkpoints of earlier versions
        contain no hash of the labels. With such a checkpoint, the labels of the first data folder are not checked. The labels
        of all other data folders must equal the labels of the first data folder.
        """
        for folder in self.folders:
            dictionary, trained = self._dictionary(folder), getattr(args, "relations_digest", None)
            found = "" if dictionary is None else digest_of_relations(dictionary)
            if trained is None:  # a new model, which gets the labels of the first folder
                args.relations_digest = found
            elif trained != found:
                raise PositionError(
                    f"{folder / RELATIONS}: the numbers of the labels differ from the training of the model. Expected the "
                    "file of the training. Binarise the data with it: posenc side binarise --relations FILE."
                )

    def _require_source(self, args: Any) -> None:
        """Raise PositionError if the reorderings of a folder have another source than the reorderings of the training run.

        The file ORDER_SOURCE of the folder names the source. For a new model, store the source of the first folder.
        """
        for folder in self.folders:
            source, trained = self._order_source(folder), getattr(args, "order_source", None)
            if trained is None:  # a new model, which gets the origin of the first folder
                args.order_source = source
            elif trained != source:
                raise PositionError(
                    f"{folder}: reorderings from {source!r}. Expected {trained!r}, as in the training of the model. "
                    "Run posenc side order with the same source."
                )

    def _digests(self, kinds: set[str]) -> dict[str, str] | None:
        """Return the hashes of the training text and of these kinds of its side files (see `digests_of_files`).

        Return None if the folders contain no training text, or no side files of it. Training then fails when it loads them.
        """
        prefixes = [prefix for folder in self.folders for prefix in self.parts(self.train_subset, folder)]
        exist = prefixes and all(file_of(prefix).exists() for prefix in prefixes)
        return digests_of_files(prefixes, kinds) if exist else None

    @staticmethod
    def _dictionary(folder: Path) -> Dictionary | None:
        path = folder / RELATIONS
        return load_relations(path) if os.path.lexists(path) else None

    def parts(self, split: str, folder: Path, combine: bool = True) -> list[Path]:
        """Return the path prefixes of a split in this folder (see `split_names`)."""
        return split_names(folder, split, self.languages, combine)

    def maker(self, split: str, folder: Path, combine: bool, upsample_primary: int) -> FromFiles:
        """Return the function that computes the side inputs of a split.

        Raise PositionError if the side files do not fit the text.
        """
        if "order" in self.kinds and not self._told:
            logger.warning("orders of %s are from %s", folder, self._order_source(folder))
            self._told = True
        sentences: Any = sentences_of(self.parts(split, folder, combine), self.kinds, upsample_primary)
        if self.random_structure is not None:
            sentences = Shuffled(sentences, self.random_structure)
        return FromFiles(sentences, self.readers)

    @staticmethod
    def _order_source(folder: Path) -> str:
        path = folder / ORDER_SOURCE
        return read_text(path, largest=2**16).strip() if path.is_file() else "an unknown source"

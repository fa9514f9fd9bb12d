"""Load the trained models of an analysis, one after another. Also load sentence pairs from the data of each training run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...common.files import read_text
from ...common.progress import Progress
from ...core import SITES, PositionError
from ...plotting.sources import checkpoint_of, load_with_task
from ..report.records import describe
from ..scoring import generated, record


@dataclass(frozen=True)
class Run:
    """A trained model in evaluation mode, the settings of its training run, and its task.

    checkpoint: file name of the checkpoint.
    """

    path: Path
    title: str
    model: Any
    settings: Any
    task: Any
    checkpoint: str

    @property
    def words(self) -> Any:
        """Return the dictionary of the source language."""
        return self.task.source_dictionary

    @property
    def begin(self) -> list[int]:
        """Return the symbols before the first word of a source: <s> for non-autoregressive models, or nothing."""
        from fairseq.tasks.translation_lev import TranslationLevenshteinTask

        return [self.words.bos()] if isinstance(self.task, TranslationLevenshteinTask) else []

    def reads_side_inputs(self, site: str | None) -> bool:
        """Return whether a method reads side inputs, which do not exist for the sentences of an analysis.

        site: "encoder" or "decoder", the only site that the analysis uses. None: the analysis uses all sites.
        """
        return bool(getattr(self.model, site).position.side_inputs if site else self.model.encoder.side_inputs)


class Runs:
    """The runs of an analysis.

    An iteration loads one run after another. If any run has no checkpoint, it raises PositionError before the first run is
    loaded.

    loaded: title of each loaded run -> file name of its checkpoint.
    unmeasured: titles of the loaded runs that read side inputs.
    """

    def __init__(self, paths: Sequence[Path], data: str | None = None):
        self.paths, self.data, self.progress = paths, data, Progress()
        self.loaded: dict[str, str] = {}
        self.unmeasured: list[str] = []
        self._sentences: tuple[str, str] | None = None  # title of the first run, and hash of its sentences

    def __iter__(self) -> Iterator[Run]:
        files = [scored_checkpoint(path) or checkpoint_of(path) for path in self.paths]
        for path, file in zip(self.paths, files):
            model, settings, task = load_with_task(file, self.data)
            title = describe({site: str(model.specs[site]) for site in SITES})
            title = title if title not in self.loaded else f"{title} ({path})"
            run = Run(path, title, model, settings, task, file.name)
            self.loaded[title] = file.name
            yield run

    def require_same_sentences(self, run: Run, sentences: Iterable[object]) -> None:
        """Raise PositionError if the sentences differ from the sentences of the first call."""
        digest = hashlib.sha256()
        for sentence in sentences:
            digest.update(f"{sentence!r}\n".encode())
        first, wanted = self._sentences = self._sentences or (run.title, digest.hexdigest())
        if digest.hexdigest() != wanted:
            raise PositionError(
                f"{run.title} and {first}: different sentences. Expected the same prepared data for all runs. Analyse these runs "
                "separately, or set the data with --data FOLDER."
            )

    def measured(self, rows: list[list[Any]], columns: int, site: str | None = None) -> Iterator[Run]:
        """Yield the runs that do not read side inputs. For each other run, append a row with `columns` missing numbers.

        site: see `Run.reads_side_inputs`. After the last run, raise PositionError if every run reads side inputs.
        """
        for run in self:
            if run.reads_side_inputs(site):
                self.unmeasured.append(run.title)
                rows.append([run.title, *[None] * columns])
            else:
                yield run
        self.progress.end()
        if len(self.unmeasured) == len(self.loaded):
            raise PositionError(
                f"{', '.join(self.unmeasured)}: the methods read side inputs, which this analysis does not have. "
                "Expected a run without side inputs. Add such a run."
            )

    def notes(self) -> list[str]:
        """Return the notes about runs without measurements and about checkpoints."""
        names = list(dict.fromkeys(self.loaded.values()))
        titles = {name: ", ".join(title for title, own in self.loaded.items() if own == name) for name in names}
        listed = names if len(names) == 1 else [f"{name} ({titles[name]})" for name in names]
        reads = "reads" if len(self.unmeasured) == 1 else "read"
        missing = f"{', '.join(self.unmeasured)} {reads} side inputs, which this analysis does not have: not measured."
        return [missing] * bool(self.unmeasured) + [f"Checkpoints: {', '.join(listed)}."]


def scored_checkpoint(path: Path) -> Path | None:
    """Return the checkpoint of a run folder that was decoded for its score.json.

    The logs of fairseq-generate in the files PART.out name the checkpoint, for the test sets PART of score.json. If several
    checkpoints were decoded, return the checkpoint of the first test set. Return None if `path` is a file, if the folder has
    no such log, or if the folder does not contain the checkpoint.
    """
    if not (path / record.FILE).is_file():
        return None
    try:
        parts = record.read(path / record.FILE).parts
    except PositionError:  # a damaged score.json names no checkpoint
        return None
    for part, scores in parts.items():
        output = path / f"{part}.out"
        try:
            named = generated.parse(read_text(output), scores.sentences, str(output)).checkpoint if output.is_file() else None
        except PositionError:  # the output is incomplete, or belongs to other sentences
            continue
        if named and os.pathsep not in named and (path / Path(named).name).is_file():  # with a separator: several models
            return path / Path(named).name
    return None


def pairs(run: Run, subset: str) -> list[tuple[list[int], list[int]]]:
    """Return source and target of every sentence pair of a split, without </s>, and without <s> (`Run.begin`)."""
    try:
        run.task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise PositionError(
            f"{run.path}: the data has no split {subset!r} ({error}). Expected the prepared data of the training run. "
            "Set the folder with --data FOLDER."
        ) from None
    dataset, begin, end = run.task.dataset(subset), run.begin, run.words.eos()
    items = (dataset[number] for number in range(len(dataset)))
    return [tuple(_words(item[side].tolist(), begin, end) for side in ("source", "target")) for item in items]


def _words(symbols: list[int], begin: list[int], end: int) -> list[int]:
    symbols = symbols[:-1] if symbols[-1:] == [end] else symbols
    return symbols[len(begin) :] if symbols[: len(begin)] == begin else symbols


def batch_of(sentences: Sequence[Sequence[int]], run: Run) -> Tensor:
    """Return a batch [B, S] of the sentences, each between `Run.begin` and </s>. Padding follows."""
    rows = [torch.tensor([*run.begin, *words, run.words.eos()]) for words in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=run.words.pad())

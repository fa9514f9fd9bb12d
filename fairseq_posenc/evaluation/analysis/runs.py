"""Load the trained models of an analysis, one after another. Also load sentence pairs from the data of each training run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...common.messages import join
from ...core import SITES, PositionError
from ...plotting.sources import checkpoint_of, load_with_task


@dataclass(frozen=True)
class Run:
    """A trained model in evaluation mode, the settings of its training run, and its task."""

    path: Path
    title: str
    model: Any
    settings: Any
    task: Any

    @property
    def words(self) -> Any:
        """Return the dictionary of the source language."""
        return self.task.source_dictionary

    def require_words_alone(self, purpose: str) -> None:
        """Raise PositionError if a method reads side inputs, which do not exist for the sentences of this analysis."""
        read = list(self.model.encoder.side_inputs)
        if read:
            raise PositionError(
                f"{self.path}: {self.title} reads the side input {join(read)}, which does not exist for {purpose}. "
                "Expected a model without side inputs."
            )


def load_runs(paths: Sequence[Path], data: str | None = None) -> Iterator[Run]:
    """Load and yield one run after another. If any run has no checkpoint, raise PositionError before the first run is loaded."""
    for path in paths:
        checkpoint_of(path)
    seen: set[str] = set()
    for path in paths:
        model, settings, task = load_with_task(path, data)
        title = method_of({site: str(spec) for site, spec in model.specs.items()})
        title = title if title not in seen else f"{title} ({path})"
        seen.add(title)
        yield Run(path, title, model, settings, task)


def method_of(specs: dict[str, str]) -> str:
    """Return one spec if encoder and decoder have the same spec and cross-attention has the spec `none`.

    Otherwise return the specs of all sites, without `none`.
    """
    if specs["encoder"] == specs["decoder"] and specs["cross"] == "none":
        return specs["encoder"]
    return ", ".join(f"{site} {specs[site]}" for site in SITES if specs[site] != "none")


def pairs(run: Run, subset: str) -> list[tuple[list[int], list[int]]]:
    """Return source and target of every sentence pair of a split, without </s>."""
    try:
        run.task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise PositionError(
            f"{run.path}: the data has no split {subset!r} ({error}). Expected the prepared data of the training run. "
            "Set the folder with --data FOLDER."
        ) from None
    dataset, end = run.task.dataset(subset), run.words.eos()
    items = (dataset[number] for number in range(len(dataset)))
    return [tuple(_without_end(item[side].tolist(), end) for side in ("source", "target")) for item in items]


def _without_end(words: list[int], end: int) -> list[int]:
    return words[:-1] if words[-1:] == [end] else words


def batch_of(sentences: Sequence[Sequence[int]], run: Run) -> Tensor:
    """Return a batch [B, S] of the sentences. </s> is appended to each sentence, then padding."""
    width = max(map(len, sentences)) + 1
    tokens = torch.full((len(sentences), width), run.words.pad())
    for row, words in zip(tokens, sentences):
        row[: len(words)] = torch.tensor(words)
        row[len(words)] = run.words.eos()
    return tokens

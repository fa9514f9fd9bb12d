"""Read facts about the training run from a fairseq checkpoint: model, positions, seed, updates, data and settings."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...common.files import digest_of, read_text
from ...common.messages import shorten
from ...core import SITES, PositionError
from ...data.side.files import KINDS, WORDS

_SECTIONS = "common distributed_training dataset optimization checkpoint ema task criterion optimizer lr_scheduler model"

#: options that are not training settings: paths, names, logging, and options that have a separate field in score.json
_EXCLUDED = frozenset({
    "_name", "data", "save_dir", "user_dir", "num_workers", "data_buffer_size", "distributed_port", "distributed_init_method",
    "no_progress_bar", "log_format", "log_interval", "log_file", "plasma_path",
    "tensorboard_logdir", "wandb_project", "aim_repo", "aim_run_hash", "azureml_logging",
    "arch", "seed", "encoder_position", "decoder_position", "cross_position", "relations_digest",
    "segments_forced",  # an option of decoding, not of training
    "loss_in_blocks",  # affects only rounding, time and memory
})  # fmt: skip


#: names of the files of `fairseq-preprocess --dataset-impl raw`, such as train.de-en.de
RAW_TEXT = re.compile(r"[^.]+\.([^.-]+)-([^.-]+)\.(\1|\2)")


@dataclass(frozen=True)
class Training:
    """The training run that wrote a checkpoint."""

    arch: str
    method: dict[str, str]  # spec of every site, as given by the user. Empty for a model of stock fairseq
    signature: dict[str, str]  # spec of every site with the values of all options
    seed: int
    updates: int
    data: list[Path]  # folders of prepared data. fairseq trains on one folder per epoch, in turn
    settings: dict[str, Any]  # all other settings
    averaged: int = 0  # number of checkpoints that `posenc average` has averaged. 0 for a checkpoint of fairseq


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the complete state of a checkpoint. `overrides` replaces values of its configuration.

    Raises:
        PositionError: The file is missing or damaged, or is not a checkpoint of fairseq.
    """
    if not path.is_file():
        raise PositionError(f"{path}: no such file. Expected a checkpoint. Check the path.")
    from .. import plugin  # noqa: F401, I001  (must be first: plugin imports compat, which prepares torch's safe loader)
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu

    try:
        state = load_checkpoint_to_cpu(str(path), overrides)
    except SystemExit as refused:  # compat exits with a one-line message
        raise PositionError(str(refused).removeprefix("fairseq_posenc: ")) from None
    with as_position_error(path):
        missing = [name for name in ("cfg", "model", "extra_state") if state[name] is None]
        if missing:
            raise KeyError(missing[0])
    return state


def read(path: Path) -> Training:
    """Return the settings of the training run that wrote the checkpoint (see `Training`). Raise PositionError if the file is
    missing, or if the settings cannot be read.
    """
    state = load(path)
    with as_position_error(path):
        return training_of(state)


@contextlib.contextmanager
def as_position_error(path: Path) -> Iterator[None]:
    """Convert errors about missing or wrong fields of a checkpoint to a PositionError."""
    try:
        yield
    except Exception as error:  # omegaconf has its own error classes
        if isinstance(error, PositionError):
            raise
        reason = shorten(f"{type(error).__name__}: {error}")
        raise PositionError(
            f"{path}: the description of the training run cannot be read ({reason}). Expected a checkpoint of fairseq-train."
        ) from None


def training_of(state: dict[str, Any]) -> Training:
    """Return the settings of the training run that wrote a checkpoint. Raise errors of any kind if the state is damaged."""
    from fairseq.utils import split_paths
    from omegaconf import OmegaConf

    given: dict[str, Any] = {}
    for name in _SECTIONS.split():
        section = state["cfg"].get(name)
        section = (
            vars(section) if isinstance(section, argparse.Namespace) else OmegaConf.to_container(section or OmegaConf.create())
        )
        given.update(section)
    lines = positions_of(state["model"])
    return Training(
        arch=given.get("arch") or given["_name"],
        method={site: given[f"{site}_position"] for site in SITES} if lines else {},
        signature=dict(line.split(": ", 1) for line in lines),
        seed=given["seed"],
        updates=state["optimizer_history"][-1]["num_updates"],
        data=[Path(folder) for folder in split_paths(given["data"])],
        settings={name: value for name, value in sorted(given.items()) if name not in _EXCLUDED},
        averaged=len(state.get("averaged", ())),
    )


def positions_of(model: Mapping[str, Any]) -> list[str]:
    """Return the specs of all sites, one per list item. Return an empty list for a model of stock fairseq."""
    text = model.get("positions_version")
    return [] if text is None else bytes(text.tolist()).decode().splitlines()


def data_digest(folders: Sequence[Path]) -> str:
    """Return a hash of the names and contents of the dictionaries and of the prepared text, binary or raw, of all folders.

    The order of the folders counts. Side files are not included.

    Raises:
        PositionError: A folder contains no such file.
    """
    found = [digest_of(_text_files(folder)) for folder in folders]
    return (found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest())[:16]


def _text_files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*"))
    files = [p for p in paths if p.suffix in (".bin", ".idx") or p.name.startswith("dict.") or RAW_TEXT.fullmatch(p.name)]
    files = [p for p in files if p.name != "dict.relations.txt" and Path(p.stem).suffix[1:] not in (*KINDS, WORDS)]
    if not files:
        raise PositionError(
            f"{folder}: the training data is missing. Expected the prepared data of the training run. "
            "Run the command in the folder in which the training was started."
        )
    return files


def corpus_name(folder: Path) -> str | None:
    """Return the corpus name from FOLDER/corpus.txt, which a recipe writes. Return None if this file does not exist."""
    path = folder / "corpus.txt"
    return read_text(path, errors="replace", largest=2**16).strip() if path.is_file() else None

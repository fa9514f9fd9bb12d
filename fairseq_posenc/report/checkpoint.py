"""What a fairseq checkpoint says of its training, and which checkpoint of an interrupted training is whole."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract import SITES, PositionError

_SECTIONS = "common distributed_training dataset optimization checkpoint ema task criterion optimizer lr_scheduler model"

#: no settings: places, names and what the screen shows; and what a table compares by itself
_APART = frozenset({
    "_name", "data", "save_dir", "user_dir", "num_workers", "data_buffer_size", "distributed_port", "distributed_init_method",
    "no_progress_bar", "log_format", "log_interval", "log_file", "plasma_path",
    "tensorboard_logdir", "wandb_project", "aim_repo", "aim_run_hash", "azureml_logging",
    "arch", "seed", "encoder_position", "decoder_position", "cross_position",
})  # fmt: skip

#: the names that fairseq gives, so that mend leaves other checkpoints alone
_OF_FAIRSEQ = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.*)\.pt")


@dataclass(frozen=True)
class Training:
    arch: str
    method: dict[str, str]  # the spec of every site as it was given; empty for a model that is not ours
    signature: dict[str, str]  # the same with all options
    seed: int
    updates: int
    data: Path
    settings: dict[str, Any]  # all others


def read(path: Path) -> Training:
    """Raises PositionError for a missing file; a damaged one ends with the one line of compat."""
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu
    from omegaconf import OmegaConf

    if not path.is_file():
        raise PositionError(f"checkpoint {path} is missing; train first, or name another with --checkpoint")
    state = load_checkpoint_to_cpu(str(path))
    given: dict[str, Any] = {}
    for name in _SECTIONS.split():
        section = state["cfg"].get(name)
        section = (
            vars(section) if isinstance(section, argparse.Namespace) else OmegaConf.to_container(section or OmegaConf.create())
        )
        given.update(section)
    if "averaged" in state:  # by posenc average
        given["averaged_checkpoints"] = len(state["averaged"])
    text = state["model"].get("positions_version")
    lines = bytes(text.tolist()).decode().splitlines() if text is not None else []
    return Training(
        arch=given.get("arch") or given["_name"],
        method={site: given[f"{site}_position"] for site in SITES} if lines else {},
        signature=dict(line.split(": ", 1) for line in lines),
        seed=given["seed"],
        updates=state["optimizer_history"][-1]["num_updates"],
        data=Path(given["data"].split(os.pathsep)[0]),
        settings={name: value for name, value in sorted(given.items()) if name not in _APART},
    )


def digest(folder: Path) -> str:
    """A hash of the prepared data: dictionaries and binary files, by name and content."""
    files = sorted(p for p in folder.glob("*") if p.name.startswith("dict.") or p.suffix in (".bin", ".idx"))
    if not files:
        raise PositionError(f"the training data {folder} is not here; run this from where the training was started")
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def corpus(folder: Path) -> str | None:
    """The name of the prepared data, where the recipe that made it has written it down."""
    path = folder / "corpus.txt"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def mend(folder: Path) -> int:
    """Readies an interrupted training for its next start, and returns the number of its updates.

    fairseq writes one checkpoint of each save at one go and copies it to checkpoint_best.pt and checkpoint_last.pt; killed
    meanwhile, it leaves half a copy. The newest whole checkpoint takes the place of such a copy, and of an older last one.
    """
    updates = {file: _updates(file) for file in folder.glob("checkpoint*.pt") if _OF_FAIRSEQ.fullmatch(file.name)}
    whole = [file for file, number in updates.items() if number is not None]
    if not whole:
        for file in updates:
            file.unlink()
        return 0
    newest = max(whole, key=updates.__getitem__)
    last = folder / "checkpoint_last.pt"
    stale = {last} if updates.get(last) != updates[newest] else set()
    for file in stale | (updates.keys() - set(whole)):
        partial = file.with_suffix(".tmp")
        shutil.copyfile(newest, partial)
        partial.replace(file)
    return updates[newest]


def _updates(path: Path) -> int | None:
    """The number of updates of a whole checkpoint, None for one that cannot be read."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return state["optimizer_history"][-1]["num_updates"]
    except Exception:  # a cut file can make the loader fail in any way
        return None


if __name__ == "__main__":  # python -m fairseq_posenc.report.checkpoint FOLDER, for recipes
    print(mend(Path(sys.argv[1])))

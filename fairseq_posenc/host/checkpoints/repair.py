"""Replace the incomplete checkpoints of an interrupted training run: python -m fairseq_posenc.host.checkpoints.repair FOLDER."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import zipfile
from pathlib import Path

from ...common.files import replace_file
from ...common.messages import shorten
from ...core import PositionError
from .bounds import UNREADABLE, problem_of_archive, problem_of_state

#: names of the checkpoints that fairseq writes. Other checkpoints, such as averages, are not changed
_OF_FAIRSEQ = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.*)\.pt")


def repair(folder: Path) -> int:
    """Prepare an interrupted training run for its next start. Return the number of updates of its newest complete checkpoint.

    At each save, fairseq writes one file. fairseq copies this file to the other names of the checkpoint, such as
    checkpoint_last.pt. If fairseq is killed during a copy, the copy is incomplete. This function replaces every incomplete
    checkpoint with the newest complete checkpoint. It also replaces checkpoint_last.pt if this file is not from the same update
    as the newest complete checkpoint. If no checkpoint is complete, the incomplete checkpoints are deleted, and the result
    is 0.
    """
    updates = {file: _updates(file) for file in folder.glob("checkpoint*.pt") if _OF_FAIRSEQ.fullmatch(file.name)}
    complete = [file for file, number in updates.items() if number is not None]
    if not complete:
        for file in updates:
            file.unlink()
        return 0
    newest = max(complete, key=updates.__getitem__)
    last = folder / "checkpoint_last.pt"
    stale = {last} if updates.get(last) != updates[newest] else set()
    for file in stale | (updates.keys() - set(complete)):
        replace_file(file, lambda partial: shutil.copyfile(newest, partial))
        if "best" in file.name:
            print(f"{file}: incomplete, and replaced by {newest.name}, which may not be the best checkpoint.", file=sys.stderr)
    return updates[newest]


def _updates(path: Path) -> int | None:
    """Return the number of updates of a complete checkpoint. Return None for a damaged checkpoint.

    Raise PositionError for a complete file that cannot be loaded, for example because it needs another version of torch.
    """
    import torch

    from .. import plugin  # noqa: F401  (plugin imports compat, which prepares torch's safe loader)

    problem = problem_of_archive(path)
    if problem and problem != UNREADABLE:
        raise PositionError(f"{path}: {problem}. Expected a checkpoint that fairseq-train wrote. Move it away.")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:  # torch.load does not verify the checksums of tensors
                return None
    except Exception:  # zipfile raises many errors for a truncated file
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        problem = problem_of_state(state)
        if problem:
            raise ValueError(problem)
        return state["optimizer_history"][-1]["num_updates"]
    except Exception as error:
        raise PositionError(
            f"{path}: the file is complete, but cannot be loaded as a checkpoint of fairseq ({shorten(str(error), 100)}). "
            "Nothing was changed. Use the versions of torch and fairseq that wrote it, or move it away."
        ) from None


def main(arguments: list[str] | None = None) -> None:
    """Repair the checkpoints of one folder, and print the number of updates."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_posenc.host.checkpoints.repair", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the --save-dir of the training")
    try:
        print(repair(parser.parse_args(arguments).folder))
    except PositionError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

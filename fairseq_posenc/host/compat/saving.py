"""Save checkpoints. If a checkpoint cannot be written, print a one-line error and keep the earlier checkpoints intact."""

import contextlib
import logging
import os
import time
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io

from ...common.files import unwritable
from .errors import first_line
from .wrappers import wrapper

logger = logging.getLogger(__name__)


def write(state, file) -> None:
    """Write a checkpoint. If this fails, try again up to two times.

    fairseq's own function also tries again, but appends to the partial file. fairseq would then report an unreadable file as
    saved.
    """
    for pause in (2.5, 2.5, None):
        try:
            return torch.save(state, file)
        except Exception:
            if pause is None:
                raise
            time.sleep(pause)
            file.seek(0)
            file.truncate()


@wrapper
def with_one_line(save, state, filename, *args, **kwargs):
    """Wrap fairseq's torch_persistent_save. If saving fails, delete the partial file and exit with a message of one line."""
    try:
        return save(state, filename, *args, **kwargs)
    except (OSError, RuntimeError) as error:
        raise SystemExit(_unwritten(filename, error)) from None


@wrapper
def atomic(copy, source, target, overwrite=False):
    """Make fairseq's PathManager.copy atomic.

    fairseq overwrites the best or the last checkpoint directly, so that a failure destroys the old checkpoint. This function
    replaces the target only after the copy is complete. If the copy fails, for example on a full disk, and `overwrite` is True,
    the target becomes a hard link to the source. If the copy fails and `overwrite` is False, or if the link also fails, the
    command exits. A hard link is safe, because fairseq replaces checkpoint files and never changes their content.
    """
    if file_io.PathManager.path_requires_pathmanager(target):
        return copy(source, target, overwrite)
    try:
        copied = copy(source, f"{target}.tmp", overwrite)
        os.replace(f"{target}.tmp", target)
    except OSError as error:
        _remove_partial(target)
        if not overwrite or not _link(source, target):
            raise SystemExit(_unwritten(target, error)) from None
        logger.warning(f"{target}: the copy failed ({error.strerror}). It is a link to {source} now. Free disk space.")
        return True
    return copied


def _link(source, target) -> bool:
    """Make `target` a hard link to `source`. Return False if the file system does not support hard links."""
    try:
        os.link(source, f"{target}.tmp")
        os.replace(f"{target}.tmp", target)
    except (AttributeError, OSError):
        return False
    return True


def _remove_partial(path) -> None:
    with contextlib.suppress(OSError):
        os.remove(f"{path}.tmp")


def _unwritten(path, error: BaseException) -> str:
    _remove_partial(path)
    while error.__context__ is not None and not isinstance(error, OSError):  # torch's error hides the error of the disk
        error = error.__context__
    reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    resumes = Path(path).with_name("checkpoint_last.pt").exists()
    then = "resumes from checkpoint_last.pt" if resumes else "starts from the beginning, without checkpoint_last.pt"
    return (
        f"fairseq_posenc: {path}: cannot be written ({reason}). Earlier checkpoints are complete. "
        f"Free disk space and run the same command again. Training then {then}."
    )


@wrapper
def with_one_line_about_the_folder(verify, save_dir):
    """Wrap fairseq's verify_checkpoint_directory, so that its error is one line without a traceback."""
    try:
        return verify(save_dir)
    except OSError as error:
        raise SystemExit(f"fairseq_posenc: --save-dir {unwritable(save_dir, error)}") from None


def apply() -> None:
    checkpoint_utils._torch_persistent_save = write
    checkpoint_utils.torch_persistent_save = with_one_line(checkpoint_utils.torch_persistent_save)
    checkpoint_utils.verify_checkpoint_directory = with_one_line_about_the_folder(checkpoint_utils.verify_checkpoint_directory)
    file_io.PathManager.copy = staticmethod(atomic(file_io.PathManager.copy))

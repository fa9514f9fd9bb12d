"""Restore the count of --patience when an interrupted training run is resumed.

The count is the number of validations without improvement. fairseq keeps this count only in memory. Without this patch, a
resumed training run would stop later than an uninterrupted training run. A training run that starts from another checkpoint,
or with an option --reset-*, is a new training run. Its count starts at 0.
"""

import logging
import os
import sys
from typing import Any

from fairseq.trainer import Trainer

from .wrappers import wrapper

logger = logging.getLogger(__name__)

_KEY = "early_stopping"  # key in the extra_state of a checkpoint


def _state() -> dict[str, Any]:
    """Return the dictionary in which fairseq-train stores the values of --patience.

    The values are the best validation score and the number of validations without improvement. In other commands, the
    dictionary is empty.
    """
    train = sys.modules.get("fairseq_cli.train")
    return vars(train.should_stop_early) if train else {}


@wrapper
def with_count(save, trainer, filename, extra_state):
    """Wrap Trainer.save_checkpoint, so that checkpoints contain the number of validations without improvement."""
    count = {key: _state()[key] for key in ("best", "num_runs") if key in _state()}
    return save(trainer, filename, {**extra_state, _KEY: count} if count else extra_state)


def _resumes(trainer: Trainer, filename: str, *resets: bool) -> bool:
    """Return whether a training run is resumed: the file is the last checkpoint of --save-dir, and nothing is reset."""
    options = trainer.cfg.checkpoint
    last = os.path.join(options.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    return os.path.realpath(filename) == os.path.realpath(last) and not any((*resets, options.reset_dataloader))


@wrapper
def restoring_count(
    load, trainer, filename, reset_optimizer=False, reset_lr_scheduler=False, optimizer_overrides=None, reset_meters=False
):
    """Wrap Trainer.load_checkpoint, so that it restores the count, and exits if the patience is already exhausted."""
    extra_state = load(trainer, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters=reset_meters)
    count = (extra_state or {}).get(_KEY)
    if count and _resumes(trainer, filename, reset_optimizer, reset_lr_scheduler, reset_meters):
        _state().update(count)
        if 0 < trainer.cfg.checkpoint.patience <= count["num_runs"]:
            logger.info(f"the training has stopped early, after {count['num_runs']} validations without a gain")
            raise SystemExit(0)
    return extra_state


def apply() -> None:
    Trainer.save_checkpoint = with_count(Trainer.save_checkpoint)
    Trainer.load_checkpoint = restoring_count(Trainer.load_checkpoint)

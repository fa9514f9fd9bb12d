"""Compare the side files of a training run with the side files of the checkpoint that the training run loads.

When a training run is resumed or fine-tuned, fairseq builds a new model before it reads the checkpoint. The options of the
checkpoint are then not compared with the options of the command.
"""

import functools

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer


def comparing(load_checkpoint):
    """Wrap Trainer.load_checkpoint, so that the task can refuse a checkpoint before its parameters are loaded."""

    @functools.wraps(load_checkpoint)
    def load(trainer, *args, **kwargs):
        require_same = getattr(trainer.task, "require_same_structure", None)
        if require_same is None:
            return load_checkpoint(trainer, *args, **kwargs)
        read = checkpoint_utils.load_checkpoint_to_cpu

        def read_and_compare(path, *args, **kwargs):
            state = read(path, *args, **kwargs)
            require_same(path, state["cfg"].model, trainer.cfg.model)
            return state

        checkpoint_utils.load_checkpoint_to_cpu = read_and_compare
        try:
            return load_checkpoint(trainer, *args, **kwargs)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = read

    return load


def apply() -> None:
    Trainer.load_checkpoint = comparing(Trainer.load_checkpoint)

"""Resume a training run, or decode, with a configuration that is already composed.

fairseq's commands compose their configuration with Hydra. For tiny models, this takes longer than the rest of the command.

    python composed.py resume CHECKPOINT SAVE_DIR            continue in SAVE_DIR, with the configuration of the checkpoint
    python composed.py generate CONFIGURATION CHECKPOINT     decode with a pickled configuration of fairseq-generate
"""

import pickle
import shutil
import sys
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.distributed.utils import call_main
from fairseq_cli import generate, train


def resume(checkpoint: str, save_dir: str) -> None:
    configuration = checkpoint_utils.load_checkpoint_to_cpu(checkpoint)["cfg"]
    configuration.checkpoint.save_dir = save_dir
    shutil.copy(checkpoint, Path(save_dir) / "checkpoint_last.pt")
    call_main(configuration, train.main)


def decode(configuration: str, checkpoint: str) -> None:
    found = pickle.loads(Path(configuration).read_bytes())
    found.common_eval.path = checkpoint
    generate.main(found)


if __name__ == "__main__":
    {"resume": resume, "generate": decode}[sys.argv[1]](*sys.argv[2:4])

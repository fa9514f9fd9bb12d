"""Checkpoint files with only those parts of a fairseq checkpoint that this project reads."""

from argparse import Namespace

import torch


def write_checkpoint(path, data, seed=3, updates=150, arch="posenc_t5_tiny", dropout=0.1, weight=None, options=None, **positions):
    """Write a file with those parts of a fairseq checkpoint that this project reads. `options` are more training options."""
    specs = {"encoder": "t5", "decoder": "t5", "cross": "none", **positions}
    text = "\n".join(f"{site}: {spec}:layers=none" for site, spec in specs.items())
    history = {"criterion_name": "c", "optimizer_name": "o", "lr_scheduler_state": {}, "num_updates": updates}
    state = {
        "args": None,
        "cfg": {
            "common": {"seed": seed, "log_interval": 50},
            "optimization": {"lr": [0.003], **(options or {})},
            "checkpoint": {"save_dir": str(path.parent)},
            "task": {"data": str(data)},
            "model": Namespace(arch=arch, dropout=dropout, **{f"{site}_position": spec for site, spec in specs.items()}),
        },
        "model": {"positions_version": torch.tensor(list(text.encode())), "weight": torch.zeros(1) if weight is None else weight},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)

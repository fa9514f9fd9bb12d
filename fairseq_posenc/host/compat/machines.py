"""Training on several machines: compare the machines before the first update, and report a lost machine in one line.

torchrun or srun starts the workers, and fairseq trains. This module also sets the network interface and a time limit for waiting.
All workers resume from the checkpoint of the first worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import struct
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import fairseq
import torch
from fairseq import checkpoint_utils
from fairseq import utils as fairseq_utils
from fairseq.distributed import utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from ...common.files import digest_of
from ...core import Refusal
from ...registry.external import VARIABLE, named_paths
from ..checkpoints.read import RAW_TEXT
from .addresses import address_to, interface_of
from .errors import first_line
from .wrappers import wrapper

logger = logging.getLogger(__name__)

#: options that may differ between machines: paths, and options of torchrun, srun, data loading and the log
_OWN_OPTIONS = {
    "data", "save_dir", "restore_file", "tensorboard_logdir", "user_dir", "log_file", "log_format", "log_interval",
    "no_progress_bar", "num_workers", "num_workers_valid", "data_buffer_size", "distributed_rank", "distributed_init_method",
    "distributed_port", "distributed_no_spawn", "distributed_num_procs", "device_id", "nprocs_per_node", "local_rank",
    "wandb_project", "azureml_logging", "aim_repo", "aim_run_hash", "_name",
}  # fmt: skip
_SHOWN = 4  # maximum number of differences in a message


@dataclass
class Worker:
    """The facts that a worker sends to all other workers before the first update."""

    number: int  # index of the machine
    machine: str  # name of the machine, for messages
    address: str
    facts: dict[str, str] = field(default_factory=dict)  # only from the first worker of each machine
    save_dir: str = ""
    checkpoint: str = ""  # the checkpoint from which this worker would resume. Empty if the file does not exist


#: all workers, in the order of their ranks. Empty before `meet` is called
_workers: list[Worker] = []


def machines() -> int:
    """Return the number of machines that torchrun or srun uses for this training run."""
    return max(int(os.environ.get(name) or 1) for name in ("GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES"))


def number() -> int:
    """Return the index of this machine."""
    return int(next(filter(None, map(os.environ.get, ("POSENC_NODE_RANK", "GROUP_RANK", "SLURM_NODEID"))), 0))


def own_address(cfg: Any) -> str:
    """Return this machine's address on the network of the first machine, or "" if it is unknown."""
    place = re.fullmatch(r"tcp://(.+):\d+", cfg.distributed_init_method or "")
    with contextlib.suppress(OSError):
        return address_to(place[1] if place else os.environ["MASTER_ADDR"])
    return ""


# --- start ---


@wrapper
def prepared(init: Callable, cfg: Any) -> int:
    """Wrap fairseq's distributed_init, so that gloo uses the right network interface of each machine.

    The right network interface is the interface through which this machine reaches the first machine.

    By default, gloo uses the address of the host name. On many machines, this address is 127.0.1.1, which other machines cannot
    reach.
    """
    training = cfg.distributed_training
    if machines() > 1 and training.distributed_backend == "gloo" and "GLOO_SOCKET_IFNAME" not in os.environ:
        interface = interface_of(own_address(training))
        if interface:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
    return init(cfg)


@wrapper
def with_timeout(make_group: Callable, *args: Any, **kwargs: Any) -> Any:
    """Wrap PyTorch's init_process_group or new_group: workers wait at most POSENC_TIMEOUT seconds for each other."""
    seconds = os.environ.get("POSENC_TIMEOUT")
    if seconds:
        kwargs.setdefault("timeout", timedelta(seconds=int(seconds)))
    return make_group(*args, **kwargs)


@wrapper
def with_store(init_process_group: Callable, *args: Any, init_method: str | None = None, **kwargs: Any) -> Any:
    """Wrap PyTorch's init_process_group, so that the worker with torchrun's rank 0 creates the TCPStore.

    torchrun's rendezvous c10d sets MASTER_ADDR to the address of this worker. `infer_from_torchrun` may give this worker another
    rank.
    """
    environment = os.environ
    if (
        init_method == "env://"
        and "POSENC_NODE_RANK" in environment
        and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "False"
    ):
        kwargs["store"] = torch.distributed.TCPStore(
            environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), kwargs["world_size"], environment["RANK"] == "0",
            timeout=kwargs.get("timeout", timedelta(minutes=30)),
        )  # fmt: skip
        init_method = None
    return init_process_group(*args, init_method=init_method, **kwargs)


# --- comparison ---


def facts(trainer: Any) -> dict[str, str]:
    """Return all facts that must be equal on all machines: name -> value, or name -> hash of files."""
    found = {
        **{f"option --{name.replace('_', '-')}": value for name, value in sorted(_options(trainer.cfg).items())},
        "code of fairseq_posenc": digest_of(sorted(Path(__file__).parents[2].rglob("*.py"))),
        f"code of {VARIABLE}": digest_of(named_paths()),
        "version of fairseq": fairseq.__version__,
        "version of torch": torch.__version__,
    }
    subsets = (trainer.cfg.dataset.train_subset, *trainer.cfg.dataset.valid_subset.split(","), "dict.")
    folders = fairseq_utils.split_paths(str(getattr(trainer.cfg.task, "data", "") or ""))
    for number, folder in enumerate(folders, 1):
        where = f" in data folder {number}" if len(folders) > 1 else ""
        for path in sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else ():
            text = path.suffix in (".bin", ".idx", ".txt") or RAW_TEXT.fullmatch(path.name)
            if path.is_file() and path.name.startswith(subsets) and text:
                kind = "dictionary" if path.name.startswith("dict.") else "data"
                named = {f"{kind} {path.name}": digest_of([path]), **_number_of_sentences(path)}
                found.update((f"{name}{where}", value) for name, value in named.items())
    return found


def _options(cfg: Any) -> dict[str, str]:
    """Return the options that must be equal on all machines: name -> value."""
    groups = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else vars(cfg)
    found: dict[str, str] = {}
    for group in groups.values():
        values = vars(group) if isinstance(group, Namespace) else group
        if isinstance(values, dict):
            found.update({name: str(value) for name, value in values.items() if name not in _OWN_OPTIONS})
    return found


def _number_of_sentences(path: Path) -> dict[str, str]:
    """Return the number of sentences of an index file (.idx) in fairseq's format "mmap". Return no entry for other files."""
    header = struct.Struct("<9sQBQ")  # name of the format, version, type of the numbers, number of sentences
    with path.open("rb") as file:
        start = file.read(header.size)
    known = len(start) == header.size and start.startswith(b"MMIDIDX")
    return {f"number of sentences in {path.stem}": str(header.unpack(start)[3])} if known else {}


def meet(trainer: Any) -> None:
    """Exchange one `Worker` record per worker in one collective operation.

    Exit if a value that must be equal on all machines differs from the value of the first machine.
    """
    cfg = trainer.cfg
    # whether this is the first worker of its machine
    first = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0) == 0
    address, own = own_address(cfg.distributed_training), number()
    name = f"machine {own} ({', '.join(filter(None, (socket.gethostname(), address)))})"
    path = _resumed_from(cfg.checkpoint)
    worker = Worker(
        own, name, address, facts(trainer) if first else {}, os.path.abspath(cfg.checkpoint.save_dir),
        path if PathManager.isfile(path) else "",
    )  # fmt: skip
    _workers[:] = [worker] * trainer.data_parallel_world_size
    torch.distributed.all_gather_object(_workers, worker)
    reference = _workers[0]
    problems = [
        f"{other.machine} differs from {reference.machine}: {found}"
        for other in _workers[1:]
        if other.facts and (found := _differences(reference.facts, other.facts))
    ]
    if problems:
        raise Refusal(
            f"{'; '.join(problems)}. Expected the same options, code and data on all machines. "
            "Give every machine the same command, and prepare the data with it."
        )
    if own != reference.number and first:
        logger.warning(f"only {reference.machine} writes checkpoints, to {reference.save_dir}")


def _differences(reference: dict[str, str], other: dict[str, str]) -> str:
    """Return a text with the names of at most _SHOWN values that differ.

    For options, versions and numbers of sentences, the text also contains both values if they are short.
    """
    names = [name for name in {**reference, **other} if reference.get(name) != other.get(name)]
    names.sort(key=lambda name: not name.startswith("number"))
    shown = [_difference(name, reference.get(name), other.get(name)) for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _difference(name: str, reference: str | None, other: str | None) -> str:
    if None in (reference, other):
        return f"{name} is missing on {'it' if other is None else 'the first'}"
    if name.startswith(("option", "number", "version")) and len(reference + other) < 80:  # type: ignore[operator]
        return f"{name} is {other}, not {reference}"
    return name


# --- checkpoints ---


def _resumed_from(cfg: Any) -> str:
    restored = cfg.restore_file
    return os.path.join(cfg.save_dir, restored) if restored == "checkpoint_last.pt" else restored


def _seen_by_the_first(path: str, there: bool) -> contextlib.AbstractContextManager:
    """Inside the `with` block, let fairseq find the file `path` on this worker if and only if `there` is True.

    `there` is True if the file exists on the first worker. The first worker reads the file for all workers.
    """

    def answering(find: Callable) -> staticmethod:
        return staticmethod(lambda asked: there if asked == path else find(asked))

    return mock.patch.multiple(PathManager, isfile=answering(PathManager.isfile), exists=answering(PathManager.exists))


@wrapper
def together(load_checkpoint: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Wrap fairseq's load_checkpoint: compare the machines before loading, and exit if the training run is completed.

    With one machine, the wrapper only calls load_checkpoint. Without the wrapper, fairseq would train a completed training run
    for one more update. A recipe cannot detect a completed training run on machines without the checkpoint.
    """
    if machines() == 1 or trainer.data_parallel_world_size == 1:
        return load_checkpoint(cfg, trainer, **kwargs)
    meet(trainer)
    with _seen_by_the_first(_resumed_from(cfg), bool(_workers[0].checkpoint)):
        loaded = load_checkpoint(cfg, trainer, **kwargs)
    if 0 < trainer.cfg.optimization.max_update <= trainer.get_num_updates():
        logger.info(f"the training has finished before, at update {trainer.get_num_updates()}")
        raise SystemExit(0)
    return loaded


# --- failures ---


@wrapper
def with_one_line(train: Callable, *args: Any, **kwargs: Any) -> Any:
    """Wrap fairseq's distributed_main: on several machines, report an error of torch.distributed in one line."""
    try:
        return train(*args, **kwargs)
    except RuntimeError as error:
        if machines() == 1 or not _is_of_a_collective(error):
            raise
        raise Refusal(_lost(str(error), first_line(error))) from None


def _is_of_a_collective(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and f"torch{os.sep}distributed{os.sep}" in trace.tb_frame.f_code.co_filename


def _lost(message: str, line: str) -> str:
    """Return the error message about a lost machine. gloo's `message` may contain the address of the lost machine."""
    others = {worker.machine: worker.address for worker in _workers if worker.number != number()}
    closed = [machine for machine, address in others.items() if address and f"[{address}]" in message]
    if not others:
        return f"machine {number()} could not connect to the others ({line[-160:]}). Start the training on all machines again."
    seconds = os.environ.get("POSENC_TIMEOUT")
    if closed:
        reason = f"lost the connection to {closed[0]}: it ended, or the network failed"
    elif "imed out" in message:
        reason = f"no answer from {' or '.join(others)}{f' within {seconds} seconds' if seconds else ''}"
    else:
        reason = f"lost the connection to {' or '.join(others)} ({line[-160:]})"
    return f"{reason}. Give the same command on every machine again; the training continues from its last checkpoint."


def apply() -> None:
    torch.distributed.init_process_group = with_store(torch.distributed.init_process_group)
    for name in ("init_process_group", "new_group"):  # fairseq calls both: new_group creates a second group of all workers
        setattr(torch.distributed, name, with_timeout(getattr(torch.distributed, name)))
    utils.distributed_init = prepared(utils.distributed_init)
    utils.distributed_main = with_one_line(utils.distributed_main)
    checkpoint_utils.load_checkpoint = together(checkpoint_utils.load_checkpoint)

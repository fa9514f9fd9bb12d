"""Training with several workers: set the rank of each worker, and send the first worker's checkpoint to all workers."""

import os

import torch
from fairseq.distributed import utils

from .wrappers import wrapper


def broadcast_object(obj, src_rank, group, dist_device):
    """Send an object from one worker to all workers, with torch's function.

    fairseq's function uses torch.load. Current versions of torch.load do not accept the configuration in a checkpoint, so that
    resuming on several devices fails. The object can be trusted: a worker of the same job has read it with
    torch's safe loader (weights_only=True).
    """
    box = [obj]
    torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]


def infer_from_torchrun(cfg) -> None:
    """Read the rank of this process from torchrun. On a machine without a GPU, fairseq's own function divides by zero.

    torchrun's rendezvous c10d numbers the machines by their addresses. POSENC_NODE_RANK contains the machine index that the user
    has given. Recipes set this variable, so that machine 0 writes the checkpoints.
    """
    environment, devices = os.environ, torch.cuda.device_count()
    cfg.distributed_init_method = "env://"
    cfg.distributed_world_size = int(environment["WORLD_SIZE"])
    cfg.distributed_rank = int(environment["RANK"])
    if "POSENC_NODE_RANK" in environment and "LOCAL_RANK" in environment:
        first = int(environment["POSENC_NODE_RANK"]) * int(environment["LOCAL_WORLD_SIZE"])
        cfg.distributed_rank = first + int(environment["LOCAL_RANK"])
    cfg.device_id = cfg.distributed_rank % devices if devices else 0
    cfg.distributed_no_spawn = True


@wrapper
def with_ranks_on_cpus(infer_from_slurm, cfg, *args, **kwargs):
    """Wrap fairseq's _infer_slurm_init, so that a process on a machine without a GPU has the rank that srun has set.

    fairseq computes ranks from the number of GPUs of a machine, which is 0 here.
    """
    workers = cfg.distributed_world_size
    found = infer_from_slurm(cfg, *args, **kwargs)
    if found and not torch.cuda.device_count():
        cfg.distributed_world_size, cfg.distributed_rank = workers, int(os.environ["SLURM_PROCID"])
        cfg.distributed_no_spawn, cfg.device_id = True, 0
    return found


def apply() -> None:
    utils._broadcast_object_slow = broadcast_object
    utils._infer_torch_distributed_launch_init = infer_from_torchrun
    utils._infer_slurm_init = with_ranks_on_cpus(utils._infer_slurm_init)

"""Make --bf16 and --fp16 work on GPUs and CPUs."""

import functools

import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer


def with_half_precision(call_main):
    """Wrap fairseq's call_main, so that half precision does not require a TPU or a GPU.

    In fairseq, --bf16 sets --tpu, which requires torch_xla. In fairseq, --fp16 copies all gradients into one tensor on a GPU.
    """

    @functools.wraps(call_main)
    def call(cfg, *args, **kwargs):
        if utils.xm is None and cfg.common.tpu and cfg.common.bf16:
            cfg.common.tpu = cfg.distributed_training.tpu = False
        if cfg.common.fp16 and (cfg.common.cpu or not torch.cuda.is_available()):
            cfg.common.fp16_no_flatten_grads = True
        return call_main(cfg, *args, **kwargs)

    return call


def without_gpu(train_step):
    """Wrap Trainer.train_step, so that an overflow of the gradients on a CPU does not end the training.

    fairseq skips such an update, but first moves a number to a GPU. Without a GPU, this raises an error.
    """

    @functools.wraps(train_step)
    def step(trainer, *args, **kwargs):
        if torch.cuda.is_available():
            return train_step(trainer, *args, **kwargs)
        cuda, torch.Tensor.cuda = torch.Tensor.cuda, lambda tensor: tensor
        try:
            return train_step(trainer, *args, **kwargs)
        finally:
            torch.Tensor.cuda = cuda

    return step


def apply() -> None:
    distributed_utils.call_main = with_half_precision(distributed_utils.call_main)
    Trainer.train_step = without_gpu(Trainer.train_step)

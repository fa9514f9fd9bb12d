"""Make --bf16 and --fp16 work on GPUs and CPUs."""

from collections.abc import Callable
from unittest import mock

import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.trainer import Trainer

from .wrappers import wrapper


@wrapper
def with_half_precision(call_main, cfg, *args, **kwargs):
    """Wrap fairseq's call_main, so that half precision does not require a TPU or a GPU.

    In fairseq, --bf16 sets --tpu, which requires torch_xla. In fairseq, --fp16 copies all gradients into one tensor on a GPU.
    """
    if utils.xm is None and cfg.common.tpu and cfg.common.bf16:
        cfg.common.tpu = cfg.distributed_training.tpu = False
    if cfg.common.fp16 and (cfg.common.cpu or not torch.cuda.is_available()):
        cfg.common.fp16_no_flatten_grads = True
    return call_main(cfg, *args, **kwargs)


@wrapper
def without_gpu(train_step, trainer, *args, **kwargs):
    """Wrap Trainer.train_step, so that an overflow of the gradients on a CPU does not end the training.

    fairseq skips such an update, but first moves a number to a GPU. Without a GPU, this raises an error.
    """
    if torch.cuda.is_available():
        return train_step(trainer, *args, **kwargs)
    with mock.patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
        return train_step(trainer, *args, **kwargs)


def clip_grad_norm(
    optimizer: AMPOptimizer, max_norm: float, aggregate_norm_fn: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Divide the gradients by the loss scale once, clip them, and return their norm. Replaces AMPOptimizer.clip_grad_norm.

    fairseq divides the gradients of `optimizer.optimizer` here. `step` passes another object, `fp32_optimizer`, to the gradient
    scaler, which then divides the same gradients again. Adam's epsilon is then larger than the gradients.
    """
    scaler = optimizer.scaler
    scaler.unscale_(optimizer.fp32_optimizer)
    norm = optimizer.fp32_optimizer.clip_grad_norm(max_norm, aggregate_norm_fn)
    if not torch.isfinite(norm).all() and optimizer.next_loss_scale <= optimizer.min_loss_scale:
        raise FloatingPointError(
            f"--amp: the gradients overflow with the smallest loss scale ({optimizer.min_loss_scale}). Expected finite "
            "gradients. Reduce the learning rate, or train without --amp."
        )
    return norm


def apply() -> None:
    AMPOptimizer.clip_grad_norm = clip_grad_norm
    distributed_utils.call_main = with_half_precision(distributed_utils.call_main)
    Trainer.train_step = without_gpu(Trainer.train_step)

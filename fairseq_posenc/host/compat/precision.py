"""Half precision: --bf16 on GPUs and CPUs."""

import functools

from fairseq import utils
from fairseq.distributed import utils as distributed_utils


def without_tpu(call_main):
    """fairseq's call_main, for which --bf16 sets --tpu: without torch_xla nothing would run."""

    @functools.wraps(call_main)
    def call(cfg, *args, **kwargs):
        if utils.xm is None and cfg.common.tpu and cfg.common.bf16:
            cfg.common.tpu = cfg.distributed_training.tpu = False
        return call_main(cfg, *args, **kwargs)

    return call


def apply() -> None:
    distributed_utils.call_main = without_tpu(distributed_utils.call_main)

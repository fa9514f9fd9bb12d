"""Where a tensor is: the one test by which code differs between a CPU and an accelerator."""

from __future__ import annotations

from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Return whether blocks that fit a cache are faster than few, large kernels."""
    return x.device.type == "cpu"

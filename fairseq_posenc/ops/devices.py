"""Test whether a tensor is on a CPU.

All model code that differs between CPU and accelerator uses this test.
"""

from __future__ import annotations

from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Return whether the tensor is on a CPU.

    Callers choose an algorithm by this test. On a CPU, many small operations on blocks that fit into the cache are faster than
    a few large operations.
    """
    return x.device.type == "cpu"

"""Test whether a tensor is on a CPU. All code that differs between CPU and accelerator uses this test."""

from __future__ import annotations

from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Return whether the tensor is on a CPU.

    On a CPU, many operations on blocks that fit into the cache are faster than a few large operations.
    """
    return x.device.type == "cpu"

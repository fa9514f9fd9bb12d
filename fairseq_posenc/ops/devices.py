"""Test whether a tensor is on a CPU. Code that differs between CPU and accelerator uses only this test."""

from __future__ import annotations

from torch import Tensor


def on_cpu(x: Tensor) -> bool:
    """Return whether the tensor is on a CPU, where blocks that fit into the cache are faster than a few large kernels."""
    return x.device.type == "cpu"

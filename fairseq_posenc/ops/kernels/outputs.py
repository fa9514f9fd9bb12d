"""Write the results of operators into parts of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def write(out: Tensor, operator: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor:
    """Write the result of an operator of PyTorch into `out`, which may be a part of a tensor or have another type.

    torch.compile does not support parts of tensors as `out=`. Under torch.compile, this function therefore copies the result.
    """
    if torch.compiler.is_compiling():
        return out.copy_(operator(*args, **options))
    return operator(*args, **options, out=out)


def sums_from_zero(x: Tensor) -> Tensor:
    """Return the cumulative sums of every row, beginning with 0: [B, H, T, S] -> [B, H, T, S + 1]."""
    sums = x.new_empty(*x.shape[:-1], x.size(-1) + 1)
    sums[..., 0] = 0
    write(sums[..., 1:], torch.cumsum, x, -1)
    return sums

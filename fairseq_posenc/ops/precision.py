"""Precision of computations that half precision would spoil."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return the tensor in float32, or as it is where its type is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))

"""Raise the precision of computations for which half precision is not sufficient."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return the tensor in float32, or unchanged if its type is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))

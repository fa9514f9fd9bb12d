"""Where half precision is not enough."""

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))

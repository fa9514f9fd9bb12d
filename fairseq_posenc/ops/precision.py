"""Use at least float32 for computations for which half precision is not sufficient."""

import torch
import torch.nn.functional as F
from torch import Tensor

#: threshold: from this x on, log(1 + exp(x)) equals x in float64.
#: The default threshold of torch's `softplus` is 20
_LINEAR_FROM = 40


def at_least_float32(x: Tensor, *, contiguous: bool = False) -> Tensor:
    """Return the tensor in float32, or unchanged if its type is float32 or wider.

    Args:
        contiguous: whether a converted tensor is contiguous in memory, so that products need no other copy.
    """
    memory = torch.contiguous_format if contiguous else torch.preserve_format
    return x.to(torch.promote_types(x.dtype, torch.float32), memory_format=memory)


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)). The only error is rounding, also in float64."""
    if torch.compiler.is_compiling():  # torch.compile expects other strides of the gradient of F.softplus than the gradient has
        return torch.logaddexp(x, x.new_zeros(()))
    return F.softplus(x, threshold=_LINEAR_FROM)

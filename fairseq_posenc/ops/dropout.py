"""Dropout on a CPU with random numbers of 16 bits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

#: number of different random numbers
_NUMBERS = 2**16


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Set each element to 0 with probability r, and divide the other elements by 1 - r: [...] -> [...].

    r is p, rounded to a multiple of 2^-16. The expected value of the result is x, as with `torch.nn.functional.dropout`. PyTorch
    draws one random number for each element. This function divides each random number of 64 bits into four, so that a CPU needs
    about a third of the time. The masks differ from the masks of PyTorch. They depend only on PyTorch's seed.
    """
    dropped = round(p * _NUMBERS)
    if dropped in (0, _NUMBERS) or torch.compiler.is_compiling():  # torch.compile does not support the random integers below
        return F.dropout(x, p)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    numbers = bits.view(torch.int16)[: x.numel()].view(x.shape)  # from -2^15 to 2^15 - 1
    kept = numbers.ge_(dropped - _NUMBERS // 2).to(x.dtype)  # 0 or 1
    return x * kept.mul_(_NUMBERS / (_NUMBERS - dropped))
